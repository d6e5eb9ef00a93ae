import xml.etree.ElementTree as tree

import pytest

from brim.record.notebook.line_chart import HEIGHT, WIDTH, Drawn, line_chart


@pytest.mark.parametrize(
    "points",
    [((1.0, 0.5),), ((1.0, 0.5), (2.0, 0.5)), ((1.0, 0.0), (2.0, 0.0)), ((1.0, -1e30), (10.0, 1e30), (11.0, 3.0))],
)
def test_every_curve_is_drawn_inside_the_frame(points):
    drawing = tree.fromstring(line_chart([Drawn("a < b & c", points)]))
    places = [line.get("points").split() for line in drawing.iter("polyline")] or [
        [f"{dot.get('cx')},{dot.get('cy')}" for dot in drawing.iter("circle")]
    ]
    pairs = [tuple(map(float, place.split(","))) for place in places[0]]
    assert len(pairs) == len(points) and all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in pairs)
    assert "a < b & c" in "".join(drawing.itertext())


def test_two_curves_have_the_same_scale():
    drawing = tree.fromstring(line_chart([Drawn("a", ((1.0, 0.0), (2.0, 1.0))), Drawn("b", ((1.0, 1.0), (2.0, 0.0)))]))
    one, other = (line.get("points").split() for line in drawing.iter("polyline"))
    assert one[0].split(",")[1] == other[1].split(",")[1]
