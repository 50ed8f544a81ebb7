"""Compares a result of `convolution --npy FILE` with SciPy: python3 compare_convolution.py FILE"""

import sys

import numpy as np
from scipy import signal

# `convolution --check` allows the same, for shades from 0 to 1.
TOLERANCE = 1e-12

# Above, the direct sum of SciPy takes minutes.
DIRECT_ELEMENTS_MAX = 300 * 300


def wrapped(full, shape):
    """Adds what a full convolution has beyond the image's edges to the opposite side."""
    rows, columns = shape
    result = np.zeros(shape)
    for row in range(0, full.shape[0], rows):
        for column in range(0, full.shape[1], columns):
            part = full[row : row + rows, column : column + columns]
            result[: part.shape[0], : part.shape[1]] += part
    return result


image, kernel, result = np.load(sys.argv[1])
methods = ["fft", "direct"] if image.size <= DIRECT_ELEMENTS_MAX else ["fft"]
differences = []
for method in methods:
    expected = wrapped(signal.convolve(image, kernel, mode="full", method=method), image.shape)
    difference = np.abs(result - expected).max()
    print(f"{image.shape}, {method}: largest difference {difference:.1e}, allowed is {TOLERANCE:.0e}")
    differences.append(difference)
# Not the built-in max, which passes over what is no number.
sys.exit(not np.max(differences) <= TOLERANCE)
