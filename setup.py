"""Package metadata, and the optional native code: the batch codec, the decoders of payloads and the
inbox of a sync thread.

The C extensions make things faster; pure Python does the same without them. So a missing compiler
is no error: one line says so and the installation goes on.

    RMQ_NATIVE=require   native code that cannot be built fails the build
    RMQ_NATIVE=no        do not try to build it
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

NATIVE = Path("broker_core", "codec", "native")
RUNTIME = Path("broker_core", "runtime")
PAYLOADS = Path("pyspark_rmq", "payloads", "native")
COMPILER_OPTIONS = ["-O3", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden"]


class OptionalBuildExt(build_ext):
    """Builds the native code that can be built."""

    def run(self) -> None:
        if os.environ.get("RMQ_NATIVE") == "no":
            self.extensions = []
            return
        self._or_go_on(super().run, self.extensions)

    def build_extension(self, ext: Extension) -> None:
        self._or_go_on(lambda: super(OptionalBuildExt, self).build_extension(ext), [ext])

    def _or_go_on(self, build: Callable[[], None], built: list[Extension]) -> None:
        try:
            build()
        except Exception as error:  # compilers fail in many ways, none of which may matter
            if os.environ.get("RMQ_NATIVE") == "require":
                raise
            first_line = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            sys.stderr.write(
                f"native code not built ({first_line}); its pure-Python twin will be used\n"
            )
            # What is not there cannot be copied into the package.
            self.extensions = [ext for ext in self.extensions if ext not in built]


class BuildWithDocs(build_py):
    """Puts the pages into the package: errors name them, and `rmq explain` shows them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "pyspark_rmq", "docs")
        self.mkpath(str(target))
        for page in sorted(Path("docs").glob("*.md")):
            self.copy_file(str(page), str(target / page.name))


def native_codec() -> Extension:
    return Extension(
        "broker_core.codec.native._native",
        sources=[str(path) for path in sorted(NATIVE.glob("*.c"))],
        include_dirs=[str(NATIVE / "include")],
        depends=[str(path) for path in sorted(NATIVE.glob("include/*.h"))],
        extra_compile_args=COMPILER_OPTIONS,
    )


def system_lane() -> Extension:
    """Syncs that do not wait for the interpreter; a thread in Python does them without it."""
    return Extension(
        "broker_core.runtime._system_lane",
        sources=[str(RUNTIME / "_system_lane.c")],
        extra_compile_args=COMPILER_OPTIONS,
    )


def payload_columns() -> Extension:
    """Decoders of whole batches of message bodies; those in Python do the same row by row."""
    includes = (NATIVE / "include", PAYLOADS)
    return Extension(
        "pyspark_rmq.payloads.native._columns",
        sources=[str(path) for path in sorted(PAYLOADS.glob("*.c"))],
        include_dirs=[str(path) for path in includes],
        depends=[str(path) for folder in includes for path in sorted(folder.glob("*.h"))],
        extra_compile_args=COMPILER_OPTIONS,
    )


def read_text(name: str) -> str:
    path = Path(__file__).parent / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


setup(
    name="pyspark-rmq",
    version="0.1.0",
    description="RocketMQ-compatible message store, broker and Spark connector",
    long_description=read_text("README.md"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    keywords=[
        "rocketmq",
        "spark",
        "pyspark",
        "structured streaming",
        "message broker",
        "exactly once",
    ],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Framework :: AsyncIO",
        "Intended Audience :: Developers",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Database",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    url="https://pypi.org/project/pyspark-rmq/",
    packages=find_packages(include=["broker_core*", "pyspark_rmq*"]),
    package_data={"broker_core": ["py.typed", "*.pyi"], "pyspark_rmq": ["py.typed"]},
    python_requires=">=3.10",
    install_requires=["numpy", "msgpack", "orjson"],
    extras_require={
        "compression": ["lz4", "zstandard"],
        "metrics": ["prometheus_client"],
        "protobuf": ["protobuf>=6.31"],
        # The bounds of pandas and pyarrow are those of the chosen Spark.
        "spark": ["pyspark[sql]>=4.0,<4.4"],
        "test": ["chispa", "pytest"],
        # `make docs`, in a virtualenv of its own.
        "docs": ["mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.27,<2"],
        "dev": [
            "chispa",
            "cryptography",
            # The next three: Spark Connect.
            "googleapis-common-protos>=1.71",
            "grpcio>=1.76",
            "grpcio-status>=1.76",
            "hypothesis",
            # The next three: example notebooks.
            "ipykernel",
            "ipython",
            "nbclient",
            "lz4",
            # Charts of `make bench-report`.
            "matplotlib",
            "mypy",
            # Frames that `produce` takes.
            "polars",
            "prometheus_client",
            "protobuf>=6.31",
            "pyarrow>=15",
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "ruff",
            "setuptools",
            "uvloop; sys_platform != 'win32'",
            "wheel",
            "zstandard",
        ],
    },
    entry_points={
        "console_scripts": ["rmq=broker_core.cli.main:main"],
        "pytest11": ["pyspark_rmq=pyspark_rmq.testing.plugin"],
    },
    # The lane tells the end of a sync through an eventfd.
    ext_modules=[
        native_codec(),
        payload_columns(),
        *([system_lane()] if sys.platform == "linux" else []),
    ],
    cmdclass={"build_ext": OptionalBuildExt, "build_py": BuildWithDocs},
)
