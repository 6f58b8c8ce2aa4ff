# tests/gpu_env.sh - sourced: `gpu_env DEBS ROOT` unpacks the packages that tests/gpu_debs.sh fetched
# into a tree of their own, once, and makes compiler, linker, loader, pkg-config and Open MPI use it.
# Libraries this machine has as well are its own; Open MPI's come whole. Returns 1 without dpkg or packages.
# `gpu_wheels PYTHON ROOT` does so for what the folder of nvcc lacks of CUDA's libraries and PyTorch's
# wheels have (nvidia/cu13, nvidia/nccl, nvidia/cudnn): it names on stderr what it took.

gpu_env() {
    local debs=$1 root=$2 deb lib=$2/usr/lib/x86_64-linux-gnu blas=$2/usr/lib/x86_64-linux-gnu/openblas-pthread link name system
    command -v dpkg >/dev/null && ls "$debs"/*.deb >/dev/null 2>&1 || return 1
    if [ ! -e "$root/.whole" ]; then
        mkdir -p "$root" || return 1
        for deb in "$debs"/*.deb; do
            dpkg -x "$deb" "$root" || return 1
        done
        [ -d "$root/lib" ] && ! [ -L "$root/lib" ] && cp -a "$root/lib/." "$root/usr/lib/" && rm -rf "$root/lib"
        # What install scripts would have made: the names of alternatives.
        ln -sf openblas-pthread/libopenblas.so.0 "$lib/libopenblas.so.0"
        ln -sf openblas-pthread/libopenblas.so "$lib/libopenblas.so"
        ln -sf ../openblas-pthread/pkgconfig/openblas.pc "$lib/pkgconfig/openblas.pc"
        cp "$root/usr/include/x86_64-linux-gnu/openblas-pthread"/*.h "$root/usr/include/x86_64-linux-gnu/"
        ln -sf openmpi/include "$lib/mpi-include"
        for name in mpirun mpiexec; do
            ln -sf orterun "$root/usr/bin/$name"
        done
        ln -sf mpicc.openmpi "$root/usr/bin/mpicc"
        # Links that name a file by its place on a whole system, or that lies elsewhere: here or there.
        ldconfig -p 2>/dev/null | sed -n 's/^\t\([^ ]*\) (libc6,x86-64.*=> \(.*\)/\1 \2/p' >"$root/.system"
        for name in "$lib"/lib*.so.*; do
            case $(basename "$name") in libmpi* | libopen-* | libmca_* | libpmix* | liboshmem* | libopenblas*) continue ;; esac
            system=$(awk -v n="$(basename "$name")" '$1 == n {print $2; exit}' "$root/.system")
            [ -n "$system" ] && ln -sf "$system" "$name"
        done
        for link in $(find "$lib" -xtype l -name 'lib*.so*'); do
            name=$(basename "$(readlink "$link")")
            if [ -e "$lib/$name" ]; then
                ln -sf "$lib/$name" "$link"
            else # libz.so -> libz.so.1.2.13: whatever libz.so.1 there is
                system=$(awk -v n="$(basename "$link" .so).so." 'index($1, n) == 1 {print $2; exit}' "$root/.system")
                [ -n "$system" ] && ln -sf "$system" "$link"
            fi
        done
        touch "$root/.whole"
    fi
    export PATH="$root/usr/bin:$PATH"
    export LD_LIBRARY_PATH="$lib:$lib/openmpi/lib:$blas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LIBRARY_PATH="$lib:$lib/openmpi/lib:$blas"
    export CPATH="$root/usr/include:$root/usr/include/x86_64-linux-gnu:$lib/openmpi/include:$lib/openmpi/include/openmpi"
    export PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_LIBDIR="$lib/pkgconfig:$root/usr/share/pkgconfig:$root/usr/lib/pkgconfig"
    export OPAL_PREFIX="$root/usr" OPAL_LIBDIR="$lib/openmpi/lib" PMIX_INSTALL_PREFIX="$lib/pmix2"
    export OPAL_PKGDATADIR="$root/usr/share/openmpi" OPAL_SYSCONFDIR="$root/etc/openmpi"
    export OPAL_PKGLIBDIR="$lib/openmpi/lib/openmpi3"
    export OMPI_MCA_mca_base_component_path="$lib/openmpi/lib/openmpi3"
    # mpirun will not start without a program for other machines, even where it needs none.
    command -v ssh >/dev/null || export OMPI_MCA_plm_rsh_agent=false
    # Transports of machines that these packages do not serve, and what Open MPI has to say of them.
    export OMPI_MCA_mtl=^psm,psm2,ofi OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp PMIX_MCA_pcompress_base_silence_warning=1
    # Containers often forbid one process to read another's memory.
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
}

gpu_wheels() {
    local python=$1 links=$2/cuda-lib nvcc cuda wheels library header found at
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    cuda=$("$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/.* TOP=//p') # as the Makefile asks
    wheels=$("$python" -c 'import nvidia; print(nvidia.__path__[0])' 2>/dev/null) || return 0
    mkdir -p "$links" || return 0
    export LIBRARY_PATH="$links${LIBRARY_PATH:+:$LIBRARY_PATH}"
    while read -r library header; do
        printf '#include <%s>\n' "$header" |
            gcc -shared -x c -isystem "$cuda/include" -L "$cuda/lib64" - "-l$library" -o "$links/probe" 2>/dev/null && continue
        at=$(find -L "$wheels" -mindepth 3 -maxdepth 3 -path "*/include/$header" 2>/dev/null | head -1)
        found=$(find -L "$wheels" -mindepth 3 -maxdepth 3 -path "*/lib/lib$library.so.*" 2>/dev/null | sort | head -1)
        [ -n "$at" ] && [ -n "$found" ] || continue
        echo "gpu-check: $library of the wheels: $found" >&2
        ln -sf "$found" "$links/lib$library.so" # what the linker looks for; wheels have the loader's name only
        export C_INCLUDE_PATH="${C_INCLUDE_PATH:+$C_INCLUDE_PATH:}$(dirname "$at")"
        export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$found")"
    done <<'LIST'
cublasLt cublasLt.h
nccl nccl.h
cudnn cudnn.h
LIST
    rm -f "$links/probe"
}
