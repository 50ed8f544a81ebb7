"""Compares the steps of `models --npy FILE` with NumPy's: `python3 compare.py FILE [ITERATIONS] [LEFT,RIGHT,BOTTOM,TOP]`."""

import sys

import numpy

steps = numpy.load(sys.argv[1])
most = int(sys.argv[2]) if len(sys.argv) > 2 else 256
region = sys.argv[3] if len(sys.argv) > 3 else "-2.25,0.75,-1.125,1.125"
left, right, bottom, top = map(float, region.split(","))
height, width = steps.shape
across, down = (right - left) / width, (top - bottom) / height
x = left + (numpy.arange(width) + 0.5) * across
y = (top - (numpy.arange(height) + 0.5) * down)[:, None]
real, imaginary = numpy.zeros(steps.shape), numpy.zeros(steps.shape)
expected = numpy.full(steps.shape, most)
inside = numpy.ones(steps.shape, bool)
for step in range(most):
    squares = real * real, imaginary * imaginary
    left_now = inside & (squares[0] + squares[1] > 4)
    expected[left_now] = step
    inside &= ~left_now
    following = squares[0] - squares[1] + x, 2 * real * imaginary + y
    real, imaginary = (numpy.where(inside, new, 0) for new in following)
different = numpy.count_nonzero(steps != expected)
print(f"{width} x {height} pixels: {different} differ from NumPy's, allowed is 0")
sys.exit(1 if different else 0)
