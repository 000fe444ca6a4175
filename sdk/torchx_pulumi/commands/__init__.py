"""The commands of `torchx-pulumi` beside `render`: one module each, words in, text out."""
