"""The one exception whose text is written for users."""


class ExplorerError(Exception):
    """Bad input or a missing resource, told in one clear sentence.

    The message says what is wrong and what is allowed. The CLI prints it on stderr and exits
    with code 2; the page shows it in place. Anything else that is raised is a defect of ours.
    """


def brief(value: object) -> str:
    """A value as a sentence can hold it, however long it is."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print a whole number of more than 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
