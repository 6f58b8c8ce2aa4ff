"""The build of the wheel and of the source distribution (PEP 517), by make and the standard library.

The wheel holds the module, the program and libelapse with the two libraries that they need. Its tag is the
oldest manylinux (PEP 600) whose glibc has every symbol that these files use."""
import base64
import hashlib
import io
import os
import re
import subprocess
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.environ.get("ELAPSE_ROOT", os.path.join(HERE, "..", "..")))


def version():
    with open(os.path.join(ROOT, "Makefile")) as file:
        return re.search(r"^VERSION := (\S+)", file.read(), re.M).group(1)


def metadata():
    with open(os.path.join(ROOT, "docs", "python.md")) as file:
        text = file.read()
    return (f"Metadata-Version: 2.1\nName: elapse\nVersion: {version()}\nSummary: Plan and predict pipeline training of transformers\n"
            "License: MIT\nRequires-Python: >=3.9\n"
            f"Description-Content-Type: text/markdown\n\n{text}")


def tag(paths):
    """py3-none-manylinux_2_N_MACHINE."""
    newest = 17
    for path in paths:
        symbols = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
        newest = max([newest, *(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols))])
    return f"py3-none-manylinux_2_{newest}_{os.uname().machine}"


def built():
    """Make the files; {path in the wheel: path here}."""
    subprocess.run(["make", "-s", "-C", ROOT, "CUDA=0", "wheel-files"], check=True)
    stage = os.path.join(ROOT, "build", "wheel")
    files = {}
    for top in (stage, HERE):
        for folder, _, names in os.walk(os.path.join(top, "elapse")):
            files.update({os.path.relpath(os.path.join(folder, name), top): os.path.join(folder, name)
                          for name in names if not name.endswith(".pyc")})
    return files


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = built()
    platform = tag([path for name, path in files.items() if name.startswith(("elapse/bin", "elapse/lib"))])
    info, record = f"elapse-{version()}.dist-info", []
    name = f"elapse-{version()}-{platform}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        def put(path, data, mode=0o644):
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))  # equal files give equal wheels
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}")

        for path in sorted(files):
            with open(files[path], "rb") as file:
                put(path, file.read(), 0o755 if path.startswith("elapse/bin") else 0o644)
        put(f"{info}/METADATA", metadata().encode())
        put(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: elapse_build\nRoot-Is-Purelib: false\nTag: {platform}\n".encode())
        put(f"{info}/entry_points.txt", b"[console_scripts]\nelapse = elapse._program:main\n")
        with open(os.path.join(ROOT, "LICENSE"), "rb") as file:
            put(f"{info}/LICENSE", file.read())
        put(f"{info}/RECORD", ("\n".join(record) + f"\n{info}/RECORD,,\n").encode())
    return name


def build_sdist(sdist_directory, config_settings=None):
    top = f"elapse-{version()}"
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    path = os.path.join(sdist_directory, f"{top}.tar.gz")
    extra = {"PKG-INFO": metadata(), "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "elapse_build"\n'
             'backend-path = ["packaging/python"]\n\n[project]\nname = "elapse"\ndynamic = ["version"]\n'}
    with tarfile.open(path, "w:gz") as archive:
        for name in filter(None, names):
            archive.add(os.path.join(ROOT, name), f"{top}/{name}", recursive=False)
        for name, text in extra.items():
            entry, data = tarfile.TarInfo(f"{top}/{name}"), text.encode()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return os.path.basename(path)
