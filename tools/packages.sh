#!/usr/bin/env bash
# Installs the system packages that building and testing need and this machine lacks. Says what is missing where it may not install.
set -euo pipefail

need=()
command -v curl >/dev/null || need+=(curl)
command -v make >/dev/null || need+=(make)
command -v gcc >/dev/null || need+=(gcc libc6-dev) # the race detector needs cgo
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || need+=(postgresql) # tests start servers of their own
command -v prometheus >/dev/null || need+=(prometheus)                                                         # services/metrics is tested before the real server
for tool in go node npm; do
  command -v "$tool" >/dev/null || { echo "$0: $tool is missing on this machine; README.md says which version" >&2; exit 1; }
done
[ ${#need[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "$0: missing on this machine: ${need[*]} (names of Debian's packages); install them, or run this as root on Debian or Ubuntu" >&2
  exit 1
fi
echo "installing ${need[*]}" >&2

# Debian starts what it installs, unless this says no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
if [[ " ${need[*]} " == *" postgresql "* ]]; then # the package would make a cluster and start it
  apt-get install -y -qq --no-install-recommends postgresql-common
  echo "create_main_cluster = false" >>/etc/postgresql-common/createcluster.conf
fi
apt-get install -y -qq --no-install-recommends "${need[@]}"
