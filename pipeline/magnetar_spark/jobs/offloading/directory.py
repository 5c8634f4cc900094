"""A directory on any file system that Spark can write, by Hadoop's FileSystem on the driver.

The file system must show a renamed file completely or not at all, and must refuse a rename onto an
existing name. On the driver's own disks Python does this with fsync and hard links, since Hadoop
does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from magnetar_core.process import durable_files
from magnetar_spark.jobs.failures import JobError

_GLOB = "*?[]{}\\"


class DirectoryError(JobError):
    """The file system refused an operation. Earlier operations stand."""


class AlreadyThere(DirectoryError):
    """A file of this name exists. No effect."""


class Entry(NamedTuple):
    """A file or a folder in a directory."""

    name: str
    is_directory: bool
    byte_count: int


def open_directory(spark: SparkSession, url: str) -> Directory:
    """Return a directory, which need not exist yet.

    Args:
        spark: the session.
        url: the path, as Spark takes it. Without a scheme it is on Hadoop's default file system, by
            default on this machine.
    Raises:
        DirectoryError: there is no such file system, or Spark takes the name for a pattern.
    """
    if any(one in url for one in _GLOB):
        raise DirectoryError(f"{url!r}: choose a path without any of {_GLOB}")
    jvm = spark._jvm
    context = getattr(spark, "_sc", None)
    if jvm is None or context is None:
        raise DirectoryError("this job needs a session of its own, not one of Spark Connect")
    configuration = context._jsc.hadoopConfiguration()
    with _told(url):
        path = jvm.org.apache.hadoop.fs.Path(url)
        system = path.getFileSystem(configuration)
        path = system.makeQualified(path)
        if system.getUri().getScheme() == "file":
            return LocalDirectory(path.toUri().getPath())
    return HadoopDirectory(jvm, configuration, system, str(path.toString()))


class Directory:
    """A directory. Paths are relative to it, with "/" between names; "" is the directory itself.

    Attributes:
        url: the URL for Spark.
    """

    url: str

    def path(self, name: str) -> str:
        """Return the path of a name, for Spark."""
        return f"{self.url}/{name}" if name else self.url

    def entries(self, name: str = "") -> list[Entry] | None:
        """Return the entries of a directory, by name; None if it does not exist.

        Raises:
            DirectoryError: it is a file.
        """
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        raise NotImplementedError

    def make(self, name: str) -> None:
        """Make a directory and its parents."""
        raise NotImplementedError

    def write_new(self, name: str, data: bytes, token: str) -> None:
        """Write a new file, completely or not at all, even if the power fails.

        Args:
            name: the file's path.
            data: its content.
            token: makes the name of the temporary file unique.
        Raises:
            AlreadyThere: the file exists.
        """
        raise NotImplementedError

    def move(self, source: str, target: str) -> None:
        """Rename a file.

        Raises:
            AlreadyThere: the target exists.
        """
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Remove a file, or a directory and its content. Harmless if it does not exist."""
        raise NotImplementedError


class HadoopDirectory(Directory):
    """A directory of a file system that Hadoop reaches, such as HDFS or S3."""

    def __init__(self, jvm: Any, configuration: Any, system: Any, url: str) -> None:
        self.url = url.rstrip("/")
        self._jvm = jvm
        self._system = system
        self._configuration = configuration

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path(name))

    def entries(self, name: str = "") -> list[Entry] | None:
        """Return the entries of a directory, by name; None if it does not exist."""
        with _told(self.path(name)):
            path = self._path(name)
            if not self._system.exists(path):
                return None
            if not self._system.getFileStatus(path).isDirectory():
                raise DirectoryError(f"{self.path(name)} is not a directory")
            found = [
                Entry(one.getPath().getName(), one.isDirectory(), one.getLen())
                for one in self._system.listStatus(path)
            ]
        return sorted(found)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with _told(self.path(name)):
            stream = self._system.open(self._path(name))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def make(self, name: str) -> None:
        """Make a directory and its parents."""
        with _told(self.path(name)):
            self._system.mkdirs(self._path(name))

    def write_new(self, name: str, data: bytes, token: str) -> None:
        """Write a new file, completely or not at all."""
        parent, _, own = name.rpartition("/")
        part = f"{parent}/.{own}.{token}"
        with _told(self.path(name)):
            stream = self._system.create(self._path(part), True)
            try:
                stream.write(bytearray(data))
                stream.hsync()
            finally:
                stream.close()
        try:
            self.move(part, name)
        except AlreadyThere:
            self.remove(part)
            raise

    def move(self, source: str, target: str) -> None:
        """Rename a file."""
        fs = self._jvm.org.apache.hadoop.fs
        with _told(self.path(target)):
            # FileSystem.rename, on some, puts a file over another one, or returns false without a
            # reason.
            context = fs.FileContext.getFileContext(self._path("").toUri(), self._configuration)
            refuse = self._jvm.java.lang.reflect.Array.newInstance(
                fs.Options.Rename.NONE.getClass(), 1
            )
            refuse[0] = fs.Options.Rename.NONE
            context.rename(self._path(source), self._path(target), refuse)

    def remove(self, name: str) -> None:
        """Remove a file or a directory."""
        with _told(self.path(name)):
            self._system.delete(self._path(name), True)


class LocalDirectory(Directory):
    """A directory of the driver's machine; executors elsewhere must see it at the same path."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)
        self.url = f"file://{self._root}"

    def entries(self, name: str = "") -> list[Entry] | None:
        """Return the entries of a directory, by name; None if it does not exist."""
        path = self._root / name
        with _told(str(path)):
            if not path.exists():
                return None
            if not path.is_dir():
                raise DirectoryError(f"{path} is not a directory")
            with os.scandir(path) as found:
                return sorted(entry for one in found if (entry := _entry(one)) is not None)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with _told(str(self._root / name)):
            return (self._root / name).read_bytes()

    def make(self, name: str) -> None:
        """Make a directory and its parents."""
        path = self._root / name
        with _told(str(path)):
            missing = [one for one in (path, *path.parents) if not one.exists()]
            path.mkdir(parents=True, exist_ok=True)
            for one in missing:
                durable_files.sync(one.parent)

    def write_new(self, name: str, data: bytes, token: str) -> None:
        """Write a new file, completely or not at all."""
        path = self._root / name
        part = path.with_name(f".{path.name}.{token}")
        with _told(str(path)):
            part.write_bytes(data)
            try:
                self._link(part, path)
            finally:
                part.unlink()

    def move(self, source: str, target: str) -> None:
        """Rename a file."""
        path = self._root / source
        with _told(str(self._root / target)):
            self._link(path, self._root / target)
            path.unlink()

    def _link(self, path: Path, target: Path) -> None:
        durable_files.sync(path)
        try:
            os.link(path, target)
        except FileExistsError as error:
            raise AlreadyThere(f"{target} is there already") from error
        durable_files.sync(target.parent)

    def remove(self, name: str) -> None:
        """Remove a file or a directory."""
        import shutil

        path = self._root / name
        with _told(str(path)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _entry(one: os.DirEntry[str]) -> Entry | None:
    """Return an entry; None if another program removes it meanwhile."""
    try:
        return Entry(one.name, one.is_dir(), one.stat().st_size)
    except FileNotFoundError:
        return None


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DirectoryError(f"{path}: {error.strerror or error}") from error
    except (Py4JJavaError, PySparkException) as error:
        text = str(getattr(error, "java_exception", None) or error)
        if "FileAlreadyExistsException" in text:
            raise AlreadyThere(f"{path} is there already") from error
        raise DirectoryError(f"{path}: {' '.join(text.split())[:300]}") from error
