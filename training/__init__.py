import unsee  # noqa: F401  # first: it keeps onnxruntime from reporting its use
