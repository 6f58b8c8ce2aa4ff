#!/bin/bash
# The commands of docs/what-if.md and what it says that they print (tests/docs.sh).
# group: slow, seconds: 17
FILE=docs/what-if.md exec "$(dirname "$0")/../docs.sh"
