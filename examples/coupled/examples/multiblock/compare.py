"""Compares a solution of the program `multiblock` with SciPy's direct solution of the sparse system.

    target/release/examples/multiblock --tolerance 1e-10 --npy solution.npy
    python3 compare.py solution.npy [X,Y [STRENGTH]]

X,Y and STRENGTH are those of the program's options --source and --strength. Exit status 1 when the largest
difference is more than a millionth of the largest value.
"""

import sys

import numpy as np
import scipy.sparse
import scipy.sparse.linalg


# Of the largest value. A residual of 1e-10 of the first is near enough, the default one of 1e-6 is not.
TOLERANCE = 1e-6


def inflow(side, columns, x, y, strength):
    """The right side: the density of the source and of its mirror image, times the square of a step."""
    rows, cols = np.mgrid[0:side, 0:columns]
    along, down = (cols + 0.5) / side, (rows + 0.5) / side
    source = np.hypot(along - x, down - y) < 0.125
    sink = np.hypot(along - (columns / side - x), down - y) < 0.125
    return (source.astype(float) - sink.astype(float)) * strength / side**2


def main(path, place="0.4,0.35", strength="100"):
    found = np.load(path)
    side, columns = found.shape
    middle = columns - 2 * side
    top = (side - middle) // 2
    inside = np.ones(found.shape, dtype=bool)
    inside[:, side : side + middle] = False
    inside[top : top + middle, side : side + middle] = True
    if (np.isnan(found) != ~inside).any():
        sys.exit("NaN is elsewhere than outside of the blocks")

    number = np.cumsum(inside).reshape(found.shape) - 1
    ends = []
    for one, other in ((np.s_[:, :-1], np.s_[:, 1:]), (np.s_[:-1, :], np.s_[1:, :])):
        both = inside[one] & inside[other]
        ends.append((number[one][both], number[other][both]))
    a = np.concatenate([a for a, _ in ends] + [b for _, b in ends])
    b = np.concatenate([b for _, b in ends] + [a for a, _ in ends])
    points = int(inside.sum())
    matrix = 4 * scipy.sparse.eye(points, format="csc")
    matrix -= scipy.sparse.csc_matrix((np.ones(len(a)), (a, b)), shape=(points, points))

    x, y = map(float, place.split(","))
    right = inflow(side, columns, x, y, float(strength))[inside]
    expected = scipy.sparse.linalg.spsolve(matrix, right)
    difference = np.abs(expected - found[inside]).max()
    largest = np.abs(expected).max()
    allowed = TOLERANCE * largest
    print(f"{points} points, largest difference {difference:.1e}, allowed is {allowed:.1e}")
    return int(not difference <= allowed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
