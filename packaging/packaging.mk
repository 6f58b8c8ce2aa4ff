# packaging/packaging.mk - install, uninstall, a Debian package.
#
# `make install` puts what `make` has built last; only where nothing is built does it build. So
# `sudo make install` compiles nothing and writes nothing into the tree.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INSTALL := PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' STRIP='$(STRIP)' VERSION=$(VERSION) packaging/install.sh

.PHONY: install uninstall deb deb-packages
install: $(if $(wildcard build/bin/elapse),,all)
	$(Q)$(INSTALL) install build
uninstall:
	$(Q)$(INSTALL) uninstall build

# Debian packages in build/deb, for other machines too: a processor that they have, and no CUDA unless
# it is asked for.
MACHINE := $(shell uname -m)
DEB_ARCH := $(if $(filter x86_64,$(MACHINE)),x86-64-v3,$(if $(filter aarch64,$(MACHINE)),armv8-a,$(ARCH)))
given = $(if $(filter command%,$(origin $(1))),$($(1)),$(2))
deb:
	$(Q)$(MAKE) --no-print-directory ARCH=$(call given,ARCH,$(DEB_ARCH)) CUDA=$(call given,CUDA,0) deb-packages
deb-packages: $(BIN) $(LIBRARY) $(OUT)/share.made
	$(Q)VERSION=$(VERSION) ARCH=$(ARCH) packaging/deb.sh $(OUT) build/deb
