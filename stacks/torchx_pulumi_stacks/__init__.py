"""Programs that `pulumi up` runs: configuration to component to exports. Only programs and tests import it."""

__all__: list[str] = []
