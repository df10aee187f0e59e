import io

import numpy as np
from PIL import Image

from mone.evaluation.latency import Timing
from mone.evaluation.plots import accuracy_figure, png
from mone.evaluation.report import Summary


def summaries(timed=True, models=("mone", "matvit", "dense"), scale=1.0):
    found = []
    for place, method in enumerate(models):
        for e_c in (1.0,) if method == "dense" else (0.2, 0.5, 1.0):
            macs = int(scale**place * 4e7 * e_c)
            timings = {b: Timing(b, 1, 2e10 / macs, 0, 1, 1, 1) for b in (1, 8)} if timed else {}
            found.append(
                Summary(
                    f"{method} {place}", method, e_c, macs, e_c, 0.7 + 0.1 * e_c, 0.01, 3, timings
                )
            )
    return found


def lines(axis):
    return {c.get_label(): c.lines[0] for c in axis.containers}


def test_panels_show_macs_and_measured_speed():
    figure = accuracy_figure(summaries())
    compute, speed = figure.axes
    assert compute.get_xlabel() == "MMAC an image"
    assert speed.get_xlabel() == "images a second, batch 8 (this machine)"
    points = lines(compute)["mone 0"].get_xydata()
    np.testing.assert_allclose(points, [[8, 72], [20, 75], [40, 80]])
    points = lines(speed)["mone 0"].get_xydata()
    np.testing.assert_allclose(points, [[2500, 72], [1000, 75], [500, 80]])
    assert compute.get_xscale() == "linear"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "mone 0", "matvit 1", "dense 2",
    ]  # fmt: skip


def test_without_timings_there_is_one_panel():
    assert len(accuracy_figure(summaries(timed=False)).axes) == 1


def test_every_model_has_a_look_of_its_own():
    models = ("mone",) * 4 + ("matvit", "mod", "dense")
    axis = accuracy_figure(summaries(models=models)).axes[0]
    looks = {(line.get_color(), line.get_marker()) for line in lines(axis).values()}
    assert len(looks) == 7


def test_models_of_very_different_size_share_a_logarithmic_axis_with_plain_numbers():
    figure = accuracy_figure(summaries(scale=30.0, models=("dense", "dense", "dense")))
    axis = figure.axes[0]
    assert axis.get_xscale() == "log"
    figure.canvas.draw()
    labels = [text.get_text() for text in axis.get_xticklabels()]
    assert "0.1" in labels
    assert "20" in labels
    assert not any("10^" in label for label in labels)


def test_png_is_an_image_of_useful_size():
    image = Image.open(io.BytesIO(png(accuracy_figure(summaries()))))
    assert image.format == "PNG"
    assert image.width > 1000
    assert np.asarray(image.convert("L")).std() > 10


def test_many_models_of_a_method_look_different():
    figure = accuracy_figure(summaries(timed=False, models=("mone",) * 20))
    drawn = [(x.get_color(), x.get_marker()) for x in lines(figure.axes[0]).values()]
    assert len(set(drawn)) == len({marker for _, marker in drawn}) == 20
