#!/bin/sh
# Builds ibnetworkd_VERSION_ARCH.deb and .rpm in build/packages. Usage:
#   VERSION=1.2.3 dist/package.sh [deb|rpm...]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
BIN=${BIN:-$root/build/bin}
out=${OUT:-$root/build/packages}
VERSION=${VERSION:-$("$here/version.sh" "$root")}
# No dash, and what comes before a release sorts before it (deb-version(7)).
VERSION=$(printf %s "$VERSION" | sed 's/^v//; s/-\(alpha\|beta\|pre\|rc\)/~\1/; s/-/+/; s/-/./g')
case $VERSION in
[0-9]*.*) ;;
*)
	# A commit's hash may begin with a digit, and would sort above all releases.
	echo "dist/package.sh: VERSION=$VERSION: a version begins with a digit and has a dot: VERSION=1.2.3 dist/package.sh" >&2
	exit 1
	;;
esac
ARCH=${ARCH:-$(go env GOARCH)}
NFPM=${NFPM:-go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0}

[ $# -gt 0 ] || set -- deb rpm
mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022
for kind in "$@"; do
	rm -rf "$stage/root"
	zsh=site-functions
	[ "$kind" != deb ] || zsh=vendor-completions
	DESTDIR=$stage/root BIN=$BIN ZSH=$zsh "$here/install.sh"
	doc=$stage/root/usr/share/doc/ibnetworkd
	if [ "$kind" = deb ]; then
		rm -f "$doc/LICENSE"
		cat >"$doc/copyright" <<COPYRIGHT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ibnetworkd

Files: *
Copyright: 2026 The ibnetworkd authors
License: Apache-2.0
 On Debian systems the full text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
COPYRIGHT
		printf 'ibnetworkd (%s-1) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source for what has changed.\n\n -- ibnetworkd maintainers <ibnetworkd@localhost>  %s\n' \
			"$VERSION" "$(date -R -d "@${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}")" | gzip -9n >"$doc/changelog.Debian.gz"
		mkdir -p "$stage/root/usr/share/lintian/overrides"
		cp "$here/packages/lintian-overrides" "$stage/root/usr/share/lintian/overrides/ibnetworkd"
	fi
	find "$stage/root" -type f -exec chmod go-w {} +
	sed "s,@COMPRESSION@,${COMPRESSION:-xz},; s,@ARCH@,$ARCH,; s,@VERSION@,$VERSION,; s,@STAGE@,$stage/root,; s,@HERE@,$here," "$here/nfpm.yaml.in" >"$stage/nfpm.yaml"
	# Debian's control file has no licence field.
	[ "$kind" != deb ] || sed -i '/^license:/d' "$stage/nfpm.yaml"
	$NFPM package --config "$stage/nfpm.yaml" --packager "$kind" --target "$out/"
done
