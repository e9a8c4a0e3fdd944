#!/bin/sh
# Installs what was built into $DESTDIR$PREFIX; `make install` and the packages
# call it. BIN is where the programs are. With an empty DESTDIR on a running
# systemd host, users, directories and the managers are notified as well.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
DESTDIR=${DESTDIR:-}
PREFIX=${PREFIX:-/usr}
BIN=${BIN:-build/bin}
case $BIN in /*) ;; *) BIN=$here/$BIN ;; esac
# Units, rules and policies are where the system reads them: below /usr/lib
# for a package, also when the programs go to /usr/local.
LIB=${LIB:-/usr/lib}
[ "$PREFIX" = /usr ] || LIB=/etc

put() { # mode source target
	install -D -m "$1" "$2" "$DESTDIR$3"
}
unit() { # source: ExecStart= lines follow PREFIX
	install -d "$DESTDIR$LIB/systemd/system"
	sed "s,=/usr/sbin/ibnet,=$PREFIX/sbin/ibnet,; s,=/usr/bin/ibnet,=$PREFIX/bin/ibnet," "$1" >"$DESTDIR$LIB/systemd/system/${1##*/}"
	chmod 644 "$DESTDIR$LIB/systemd/system/${1##*/}"
}

for p in ibnetworkd ibnetsm; do put 755 "$BIN/$p" "$PREFIX/sbin/$p"; done
put 755 "$BIN/ibnetctl" "$PREFIX/bin/ibnetctl"

for u in "$here"/dist/systemd/*.service "$here"/dist/systemd/*.socket "$here"/dist/systemd/*.path; do unit "$u"; done
put 644 "$here/dist/udev/90-ibnetworkd.rules" "$LIB/udev/rules.d/90-ibnetworkd.rules"
put 644 "$here/dist/sysusers/ibnetworkd.conf" "$LIB/sysusers.d/ibnetworkd.conf"
put 644 "$here/dist/tmpfiles/ibnetworkd.conf" "$LIB/tmpfiles.d/ibnetworkd.conf"
# The bus and polkit look below /usr/share only.
put 644 "$here/dist/dbus/org.ibnetwork1.conf" "/usr/share/dbus-1/system.d/org.ibnetwork1.conf"
put 644 "$here/dist/polkit/org.ibnetwork1.policy" "/usr/share/polkit-1/actions/org.ibnetwork1.policy"

# Without units in /etc/ibnetworkd/initramfs they do nothing.
hooks=/usr/share/initramfs-tools
[ "$PREFIX" = /usr ] || hooks=/etc/initramfs-tools
for f in hooks/ibnetworkd scripts/init-premount/ibnetworkd scripts/init-bottom/ibnetworkd; do
	put 755 "$here/dist/initramfs-tools/$f" "$hooks/$f"
done

dracut=/usr/lib/dracut/modules.d/36ibnetworkd
for f in "$here"/dist/dracut/36ibnetworkd/*.sh; do put 755 "$f" "$dracut/${f##*/}"; done

# For the Prometheus server, which is another host as a rule.
for f in rules.yml dashboard.json; do
	put 644 "$here/dist/prometheus/ibnetworkd.$f" "$PREFIX/share/ibnetworkd/prometheus/ibnetworkd.$f"
done

for m in "$here"/docs/man/*.[1-8]; do
	[ -e "$m" ] || continue
	install -d "$DESTDIR$PREFIX/share/man/man${m##*.}"
	gzip -9n <"$m" >"$DESTDIR$PREFIX/share/man/man${m##*.}/${m##*/}.gz"
	chmod 644 "$DESTDIR$PREFIX/share/man/man${m##*.}/${m##*/}.gz"
done

# Debian's zsh reads what its packages bring in a folder of its own.
if [ -z "${ZSH:-}" ]; then
	ZSH=site-functions
	[ "$PREFIX" != /usr ] || [ ! -e /etc/debian_version ] || ZSH=vendor-completions
fi
completion() { # shell target
	install -d "$(dirname "$DESTDIR$2")"
	"$BIN/ibnetctl" completion "$1" >"$DESTDIR$2"
	chmod 644 "$DESTDIR$2"
}
completion bash "$PREFIX/share/bash-completion/completions/ibnetctl"
completion zsh "$PREFIX/share/zsh/$ZSH/_ibnetctl"
completion fish "$PREFIX/share/fish/vendor_completions.d/ibnetctl.fish"

for f in README.md LICENSE; do put 644 "$here/$f" "$PREFIX/share/doc/ibnetworkd/$f"; done
for f in "$here"/docs/*.md "$here"/docs/*.json; do put 644 "$f" "$PREFIX/share/doc/ibnetworkd/${f##*/}"; done
for f in "$here"/docs/tasks/*.md; do put 644 "$f" "$PREFIX/share/doc/ibnetworkd/tasks/${f##*/}"; done
if [ -d "$here/docs/examples" ]; then
	for f in "$here"/docs/examples/*; do put 644 "$f" "$PREFIX/share/doc/ibnetworkd/examples/${f##*/}"; done
fi

if [ -z "$DESTDIR" ] && [ -d /run/systemd/system ] && [ "${TELL:-1}" = 1 ]; then
	systemd-sysusers "$LIB/sysusers.d/ibnetworkd.conf"
	systemd-tmpfiles --create "$LIB/tmpfiles.d/ibnetworkd.conf"
	udevadm control --reload && udevadm trigger --subsystem-match=infiniband_mad --action=change || true
	systemctl daemon-reload
	busctl call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus ReloadConfig >/dev/null 2>&1 || true
	echo "installed; start it with: systemctl enable --now ibnetworkd"
fi
