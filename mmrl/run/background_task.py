"""One task at a time in a thread, such as the writing of a checkpoint while training goes on."""

import threading
from collections.abc import Callable


class BackgroundTask:
    """A thread for one task at a time, whose error is raised where its end is awaited.

    Args:
        name: of the thread.
        daemon: whether the process may end before the task.
    """

    def __init__(self, name: str, daemon: bool = False) -> None:
        self.name, self.daemon = name, daemon
        self.error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether a task has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], object]) -> None:
        """Begin a task; the last one has ended and its error was taken."""
        assert not self.running and self.error is None

        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run, name=self.name, daemon=self.daemon)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the task has ended, if there is one."""
        if self._thread is not None:
            self._thread.join()

    def take_error(self) -> BaseException | None:
        """What the last task has raised, once."""
        error, self.error = self.error, None
        return error
