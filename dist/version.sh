#!/bin/sh
# Prints the version of the tree as a package may have it: it begins with a
# digit, has no dash, and grows with each commit (deb-version(7)).
#   v1.2.3                       1.2.3
#   v1.2.3-rc1                   1.2.3~rc1
#   4 commits after v1.2.3       1.2.3+4.gHASH
#   no tag                       0.0~gitYYYYMMDDhhmmss.HASH
#   no git                       0.0~devel
# With "+dirty" if files differ from the commit. Usage: version.sh [DIRECTORY]
set -eu

dir=${1:-$(dirname "$0")/..}
git() { command git -C "$dir" "$@" 2>/dev/null; }
if ! hash=$(git rev-parse --short=7 HEAD); then
	echo 0.0~devel
	exit
fi
dirty=
[ -z "$(git status --porcelain --untracked-files=no)" ] || dirty=+dirty
if tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*'); then
	after=$(git rev-list --count "$tag..HEAD")
	version=$(printf %s "${tag#v}" | sed 's/-\(alpha\|beta\|pre\|rc\)/~\1/; s/-/+/; s/-/./g')
	[ "$after" = 0 ] || version=$version+$after.g$hash
else
	version=0.0~git$(TZ=UTC0 command git -C "$dir" log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S).$hash
fi
echo "$version$dirty"
