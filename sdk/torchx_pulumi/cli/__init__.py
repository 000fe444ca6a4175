"""The console command `torchx-pulumi`: one module for each group of commands."""
