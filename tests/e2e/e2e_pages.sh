#!/bin/bash
# The commands of the pages that tests/docs.sh leaves out of `make test`, after README.md's, whose runs they read.
# group: slow, seconds: 30
cd "$(dirname "$0")/../.." || exit 3
FILE="README.md $(grep -l '^```sh' docs/*.md examples/*/README.md | grep -vE 'what-if|tutorial|commands' | tr '\n' ' ')" exec tests/docs.sh
