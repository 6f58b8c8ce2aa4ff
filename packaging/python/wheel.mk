# packaging/python/wheel.mk - what the Python wheel holds, in build/wheel: the program and libelapse, which find
# SQLite and cJSON beside them. `make wheel` makes the wheel itself, `make sdist` the source distribution.
WHEEL := build/wheel/elapse
WHEEL_LIBS = $(shell ldd $(OUT)/bin/elapse | awk '/sqlite3|cjson/ { print $$3 }')
wheel_build = $(PYTHON) -c 'import sys; sys.path.insert(0, "packaging/python"); import elapse_build; print(elapse_build.$(1)("build"))'
.PHONY: wheel sdist wheel-files
wheel sdist:
	$(Q)$(call wheel_build,build_$@)
wheel-files: $(OUT)/bin/elapse $(OUT)/cli/main.c.o $(call objs,library) $(call libs,cli sim profiles partition) library/elapse.map
	$(Q)rm -rf $(WHEEL) && mkdir -p $(WHEEL)/bin $(WHEEL)/lib && cp -L $(WHEEL_LIBS) $(WHEEL)/lib/
	$(Q)$(CC) -s -pthread $(OUT)/cli/main.c.o $(OUT)/build_facts.o $(call libs,cli sim profiles partition) $(LIBS_cli) $(LIBS_base) \
	  -Wl,-rpath,'$$ORIGIN/../lib' -o $(WHEEL)/bin/elapse
	$(Q)$(CC) -s -shared -pthread $(call objs,library) $(call libs,sim profiles partition) $(LIBS_base) -Wl,--no-undefined \
	  -Wl,-soname,$(SONAME) -Wl,--version-script=library/elapse.map -Wl,-rpath,'$$ORIGIN' -o $(WHEEL)/lib/$(SONAME)
