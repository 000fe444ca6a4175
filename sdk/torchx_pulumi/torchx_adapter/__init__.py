"""The TorchX schedulers `pulumi_volcano` and `pulumi_mcad`. Only this package and the stack program import TorchX.

`scheduler` is TorchX's interface, `compat` all that differs between TorchX 0.7.0 and nightly. The engine is
passed in as a `Driver`.
"""
