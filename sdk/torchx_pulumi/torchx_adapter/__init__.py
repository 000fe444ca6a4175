"""The TorchX schedulers `pulumi_volcano` and `pulumi_mcad`. Beside the stack program's `app.py`, the door to TorchX.

`scheduler` is TorchX's interface, `compat` all that differs between TorchX 0.7.0 and nightly. The engine comes in from
above, as a `Driver`.
"""
