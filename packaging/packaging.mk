# packaging/packaging.mk - install, uninstall, a Debian package.
#
# `make install` puts what `make` has built last; only where nothing is built does it build. So
# `sudo make install` compiles nothing and writes nothing into the tree.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INSTALL := PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' STRIP='$(STRIP)' VERSION=$(VERSION) packaging/install.sh

.PHONY: install uninstall
install: $(if $(wildcard build/bin/elapse),,all)
	$(Q)$(INSTALL) install build
uninstall:
	$(Q)$(INSTALL) uninstall build
