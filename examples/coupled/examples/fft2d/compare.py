"""Compares the files of `fft2d --npy FOLDER` with numpy.fft.fft2: `python3 compare.py FOLDER`."""

import pathlib
import sys

import numpy

folder = pathlib.Path(sys.argv[1])
array, transform = (numpy.load(folder / name) for name in ("input.npy", "transform.npy"))
expected = numpy.fft.fft2(array)
apart = abs(transform - expected).max() / abs(expected).max()
print(f"{array.shape}: largest difference {apart:.1e} of the largest magnitude, allowed is 1e-12")
sys.exit(not apart <= 1e-12)
