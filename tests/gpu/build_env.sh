# tests/gpu/build_env.sh - sourced: what a build finds on a machine without packages.
#
#   build_env SYS DEV     compiler, linker, loader and pkg-config use the bundle's libraries (SYS) and headers (DEV)
#   wheels_env LINKS      what the folder of nvcc lacks of CUDA's libraries comes from PyTorch's wheels, with names
#                         for the linker in the folder LINKS; says on stdout what it took

build_env() {
    local dev=$2 lib=$1/usr/lib/x86_64-linux-gnu name file
    mkdir -p "$dev/links"
    while read -r name file; do # libNAME.so, which only packages for developers have
        ln -sf "$lib/$file" "$dev/links/$name"
    done <"$dev/links.txt"
    export PATH="$dev/usr/bin:$PATH" LIBRARY_PATH="$dev/links${LIBRARY_PATH:+:$LIBRARY_PATH}"
    export LD_LIBRARY_PATH="$lib:$dev/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export CPATH="$dev/usr/include:$dev/usr/include/x86_64-linux-gnu"
    export PKG_CONFIG_SYSROOT_DIR="$dev" PKG_CONFIG_LIBDIR="$dev/pkgconfig"
    wheels_env "$dev/links"
}

wheels_env() {
    local links=$1 nvcc cuda wheels library header found at
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    cuda=$("$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/.* TOP=//p') # as the Makefile asks
    wheels=$("$python" -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null) || return 0
    mkdir -p "$links" && export LIBRARY_PATH="$links${LIBRARY_PATH:+:$LIBRARY_PATH}"
    while read -r library header; do
        printf '#include <%s>\n' "$header" |
            gcc -shared -x c -isystem "$cuda/include" -L "$cuda/lib64" - "-l$library" -o "$links/probe" 2>/dev/null && continue
        at=$(find -L $wheels -mindepth 3 -maxdepth 3 -path "*/include/$header" 2>/dev/null | head -1)
        found=$(find -L $wheels -mindepth 3 -maxdepth 3 -path "*/lib/lib$library.so.*" 2>/dev/null | sort | head -1)
        [ -n "$at" ] && [ -n "$found" ] || continue
        echo "$library of the wheels: $found"
        ln -sf "$found" "$links/lib$library.so"
        export C_INCLUDE_PATH="${C_INCLUDE_PATH:+$C_INCLUDE_PATH:}$(dirname "$at")"
        export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$found")"
    done <<'LIST'
cublasLt cublasLt.h
nccl nccl.h
cudnn cudnn.h
LIST
    rm -f "$links/probe"
}
