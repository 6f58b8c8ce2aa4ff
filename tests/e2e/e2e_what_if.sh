#!/bin/bash
# The commands of docs/what-if.md and docs/what-if-more.md, and what they say that the commands print (tests/docs.sh).
# group: slow, seconds: 17
FILE="docs/what-if.md docs/what-if-more.md" exec "$(dirname "$0")/../docs.sh"
