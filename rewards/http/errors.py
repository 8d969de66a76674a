"""Why a request to a service has no answer."""


class Unreachable(ConnectionError):
    """There was no answer before the deadline or within the allowed tries."""


class Refused(RuntimeError):
    """The service answered, and another try would not help.

    Attributes:
        status: of the answer; 0 if the status is not the reason.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Unreadable(Refused):
    """An answer that should be JSON and is not."""
