from hypothesis import given
from hypothesis import strategies as st

from explorer.figures.swarm import LABEL, MARK, SLOTS, spread

MARKS = st.lists(st.tuples(st.integers(1, 3), st.floats(0, 100)), max_size=25)


@given(MARKS)
def test_marks_of_a_column_do_not_cover_one_another_while_there_is_room(marks):
    columns, heights = [column for column, _ in marks], [height for _, height in marks]
    spots = spread(columns, heights, range(len(marks)))
    assert len(spots) == len(marks)
    for one, first in enumerate(spots):
        assert 0 <= first.slot < SLOTS
        for other, second in enumerate(spots[:one]):
            if columns[one] == columns[other] and first.slot == second.slot < SLOTS - 1:
                assert abs(heights[one] - heights[other]) >= MARK


@given(MARKS)
def test_labels_of_a_column_do_not_cover_one_another_nor_a_mark(marks):
    columns, heights = [column for column, _ in marks], [height for _, height in marks]
    spots = spread(columns, heights, range(len(marks)))
    named = [place for place, spot in enumerate(spots) if spot.label is not None]
    for place in named:
        for other, spot in enumerate(spots):
            if other == place or columns[other] != columns[place]:
                continue
            apart = abs(heights[other] - heights[place])
            assert spot.label is None or apart >= LABEL
            assert apart >= MARK or spot.slot <= spots[place].label


def test_the_first_in_order_keeps_the_middle_and_the_label():
    spots = spread([1, 1, 2], [50.0, 52.0, 50.0], [1, 0, 2])
    assert [(spot.slot, spot.label, spot.beside) for spot in spots] == [(1, None, 0), (0, 1, 1), (0, 0, 0)]
