"""The live page, the API and the metrics of a controller, over HTTP. Everything is read only."""
