"""What the demo stops with. Nothing else lives here."""


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do."""
