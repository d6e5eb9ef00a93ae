import torch

from brim.engine.compiled.batch_shapes import BatchShapes, VaryingDimensions, Way


def ways(*shapes):
    seen = BatchShapes()
    return [seen.way([torch.empty(shape)], shape) for shape in shapes]


def test_one_shape_has_code_of_its_own_and_a_rare_shorter_batch_is_eager():
    assert ways(*[(4, 8)] * 3, (2, 8), *[(4, 8)] * 3) == [Way.STATIC] * 3 + [Way.EAGER] + [Way.STATIC] * 3


def test_shapes_that_vary_become_dynamic_for_all():
    found = ways((4, 8), (4, 9), (4, 7), (4, 6), (4, 8))
    assert found == [Way.STATIC, Way.EAGER, *[Way.DYNAMIC] * 3]


def test_a_varying_dimension_of_length_one_is_eager():
    assert ways((4, 8), (4, 9), (4, 7), (4, 1), (4, 6))[3:] == [Way.EAGER, Way.DYNAMIC]


def test_dimensions_that_vary_are_found_by_tensor_and_place():
    varying = VaryingDimensions()
    for shapes in ([(4, 8), (4,)], [(4, 9), (4,)], [(3, 9), (3,)]):
        varying.note(shapes)
    assert varying.found == {(0, 0), (0, 1), (1, 0)}
