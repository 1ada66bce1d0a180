"""The lock of a run folder: one writer at a time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from unsee.errors import RunError, RunInUse, WriteError

LOCK = ".lock"
TRIES = 5  # at a folder that another process deletes while it is being locked


class FolderLock:
    """The lock of a folder, taken. Other threads of the process are kept out as well, and any may free it."""

    def __init__(self, folder: Path, wait: float = 0) -> None:
        self._path = folder / LOCK
        self._lock = FileLock(self._path, timeout=wait, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise RunInUse(f"{folder} is in use by another unsee process") from None
        except (FileNotFoundError, FileExistsError):  # the folder is being deleted, see `withdraw`
            raise
        except OSError as error:
            raise WriteError(f"cannot write to {folder}: {error.strerror or error}") from None

    def release(self) -> None:
        """Frees the folder. The lock file stays: who opened it and waits would else hold the lock of a deleted file."""
        self._lock.release()

    def withdraw(self) -> None:
        """Frees a folder that nothing was written to, and deletes the lock file, and the folder if it is then empty.

        The file is deleted before it is released: who opened it and waits then finds that it has no name any more,
        and starts over. Deleted after, it may be theirs already.
        """
        with suppress(OSError):
            self._path.unlink()
        self._lock.release()
        with suppress(OSError):  # it holds other files, or an earlier run
            self._path.parent.rmdir()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_new_folder(folder: Path) -> FolderLock:
    """The lock of a folder that is made if it is missing."""
    for _ in range(TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return FolderLock(folder)
        except (FileNotFoundError, FileExistsError):  # another process has just withdrawn from it
            continue
        except WriteError:
            raise
        except OSError as error:
            raise RunError(f"cannot make the run folder {folder}: {error.strerror}") from None
    raise RunInUse(f"{folder} is in use by another unsee process")
