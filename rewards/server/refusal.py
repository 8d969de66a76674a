"""An answer that is no score: why a request is refused."""


class Refusal(Exception):
    """A request that is answered with an error.

    Args:
        status: of HTTP. 4xx must not be tried again, except 408 and 429.
        code: the reason in one word, for programs.
        message: the reason for people; nothing of what was sent beyond short names.
        retry_after: seconds after which another try may succeed.
    """

    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after = retry_after
