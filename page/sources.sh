#!/bin/sh
# page/sources.sh FOLDER - Debian's sources of cJSON and SQLite, patched, as files that a compiler takes:
# FOLDER/cjson/cJSON.c, FOLDER/sqlite3.c and their headers. Needs apt, dpkg-dev, tclsh and the network.
# It reads deb-src of its own list, and changes no setting of apt.
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. /etc/os-release
mkdir -p "$work/lists/partial" "$work/state"
echo "deb-src http://deb.debian.org/debian $VERSION_CODENAME main" >"$work/sources.list"
cd "$work"
set -- -qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o "Dir::State::lists=$work/lists" -o "Dir::State=$work/state" -o APT::Sandbox::User=root
apt-get "$@" update
apt-get "$@" source cjson sqlite3
mkdir -p "$folder/cjson"
cp cjson-*/cJSON.c cjson-*/cJSON.h "$folder/cjson"
cd sqlite3-*/
./configure -q >/dev/null
make -s sqlite3.c >/dev/null
cp sqlite3.c sqlite3.h "$folder"
