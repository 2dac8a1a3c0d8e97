"""Networks from and to SciPy, Matrix Market, PyTorch and ONNX."""
