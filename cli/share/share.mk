# Man pages and completion, written from what `elapse --help=rows` prints: `make docs-files`.
SHARE_FROM := $(wildcard cli/share/*.awk cli/share/*.sh cli/share/*.bash) README.md docs/environment.md
.PHONY: docs-files
all: docs-files
docs-files: $(OUT)/share.made
	@mkdir -p build && ln -sfn $(HASH)/share build/share
$(OUT)/share.made: $(BIN) $(SHARE_FROM)
	$(if $(Q),@echo "  DOC share/")
	$(Q)cli/share/share.sh $(OUT)/bin/elapse $(OUT)/share && touch $@
