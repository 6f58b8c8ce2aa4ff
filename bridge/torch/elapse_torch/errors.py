"""One failure, one line: the subject, the value, the limit, and the exit codes of `elapse`."""


class BridgeError(Exception):
    """code: 1 sound but impossible, 2 bad usage or content, 3 a missing file, rank or device."""

    def __init__(self, message, code=2, hint=""):
        super().__init__(message)
        self.code = code
        self.hint = hint
