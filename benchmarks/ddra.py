# SPDX-License-Identifier: Apache-2.0
"""Video written by `reencode_ddra`: bytes at equal quality, encode speed, and random access.

Run it as `python -m benchmarks.ddra MASTERS H264_DATASET [AV1_DATASET] [--calibrate]`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import targets
from benchmarks.clip_encoders import (
    AV1_PYRAMID,
    CLIP_ENCODERS,
    DDRA_H264,
    DDRA_HEVC,
    DDRA_HEVC_4,
    LEROBOT_AV1,
    LEROBOT_CRF,
    PAPER_H264,
    PAPER_HEVC,
    PLAIN_X265,
    REFERENCE,
    ClipEncoder,
)
from benchmarks.clips import Clip, Coded, measure_coded, read_clip
from benchmarks.cpu_clock import Cost, cpu_ratio, median_cpu_ms
from benchmarks.encode_speed import ENCODER, PIPELINE, PLAIN, measure_speed
from benchmarks.frame_readers import PROJECT, TORCHCODEC_EXACT
from benchmarks.interval_calibration import INTERVALS, calibrate
from benchmarks.rate_curve import RateCurve, trace_curve
from benchmarks.reencoded_dataset import (
    AV1,
    CONTESTANTS,
    DDRA,
    DDRA_INDEXED,
    NATIVE,
    Reencoded,
    measure_access,
    pictures_alone,
    pictures_of_random_frames,
    reencode_dataset,
    with_index_files,
)
from benchmarks.report import print_table, print_verdicts, write_results
from benchmarks.robot_dataset import RobotDataset, read_robot_dataset
from benchmarks.targets import Verdict

METHOD = """
Bytes: every encoder codes the same lossless clips at several rate factors (crf), one thread each, until two of its points
lie above and two below the RGB PSNR of the reference; the logarithm of its bytes is interpolated over PSNR by the cubic
through these four, never extrapolated. PSNR is the mean over the frames of each frame's, of R, G and B as PyAV 18 makes
them. Bytes are those of packets and parameter sets. The reference is what LeRobot does by default, SVT-AV1 g=2 crf 30
preset 12, by the SVT-AV1 in PyAV. DDRA is written by reencode_ddra as a user would, interval "auto". "As in the paper" is
keyint 32, 31 B pictures, one reference, preset medium and no tune, by the project's builds of x265 and x264: psychovisual
optimisation and adaptive quantisation are those encoders' own, and so are cu-tree and mb-tree, which are on; the types of
all pictures are given. SVT-AV1 g=16 and libx265 medium as it is are for context.
Speed: CPU time of all threads for the same frames in memory to a file, one encoder thread, at crfs that give the
reference's PSNR, by turns; a ratio is the median of the ratios of the rounds. The pipeline reads the lossless file twice
and the new one twice on top. The share of the choice of intervals is measured where the dataset is encoded anew, at its
crf, and includes decoding the source for it.
Random access: 16 random frames of one episode from each camera, shards opened anew, every reader in a process of its own
and by turns, as in random_access; a ratio is the median over the batches. With index files is what lerobot.reencode
leaves; without them the shards are indexed each time. Pictures are counted by plans, alone for every frame of every shard.
Calibration: each episode in full size at preset medium with every fixed interval, bytes interpolated at the PSNR of the
chosen structure as above.
"""

COMPARED = ((DDRA_HEVC, LEROBOT_AV1), (DDRA_HEVC_4, LEROBOT_AV1), (DDRA_HEVC, PAPER_HEVC), (DDRA_H264, PAPER_H264))
"""What the targets of `targets.DDRA_BYTES` are about, in their order."""

DRAWS = 200  # batches of which the pictures are counted
DEFAULT_CRF = 20.0  # of reencode_ddra


@dataclass(frozen=True)
class ClipRates:
    """What the encoders make of one clip."""

    clip: Clip
    reference: Coded
    curves: dict[str, RateCurve]
    structures: dict[str, dict[float, str]]

    def bytes_of(self, encoder: str) -> float:
        """Tell the bytes at the quality of the reference."""
        if encoder == LEROBOT_AV1:
            return self.reference.size_bytes
        return self.curves[encoder].bytes_at(self.reference.psnr_db)

    def ratio(self, encoder: str, other: str) -> float:
        """Compare the bytes of two encoders."""
        return self.bytes_of(encoder) / self.bytes_of(other)


def measure_rates(clip: Clip, folder: Path, also_db: Sequence[float] = ()) -> ClipRates:
    """Trace the curves of all encoders around the quality of LeRobot's default.

    Args:
        clip: What is encoded.
        folder: Where files are written.
        also_db: Other qualities at which the curves will be asked.

    Returns:
        The curves.

    """
    output = folder / "rate.mp4"
    structures: dict[str, dict[float, str]] = {}

    def coded(name: str, encoder: ClipEncoder, crf: float) -> Coded:
        structures.setdefault(name, {})[crf] = encoder.encode(clip, output, crf)
        return measure_coded(output, clip)

    reference = coded(LEROBOT_AV1, REFERENCE, LEROBOT_CRF)
    curves = {
        name: trace_curve(
            partial(coded, name, encoder),
            [reference.psnr_db, *also_db],
            first_crf=encoder.first_crf,
            step=encoder.step,
            limits=(0, encoder.greatest_crf),
        )
        for name, encoder in CLIP_ENCODERS.items()
    }
    return ClipRates(clip, reference, curves, structures)


def _report_rates(rates: ClipRates, view: str, recorded: Coded | None) -> tuple[list[Verdict], dict[str, Any]]:
    rows: list[tuple[str, Sequence[str]]] = []
    for name in (LEROBOT_AV1, *CLIP_ENCODERS):
        structures = sorted({told for told in rates.structures[name].values() if told})
        size_bytes = rates.bytes_of(name)
        of_reference = f"{size_bytes / rates.reference.size_bytes:.3f}x"
        rows.append((name, [f"{size_bytes / 1024:.0f}", of_reference, "; ".join(structures)]))
    count, psnr_db = len(rates.clip.frames), rates.reference.psnr_db
    print_table(
        f"{rates.clip.name}, {view} view, {count} frames at {psnr_db:.2f} dB RGB", ["KiB", "of LeRobot's", ""], rows
    )
    figures: dict[str, Any] = {
        "view": view,
        "reference": asdict(rates.reference),
        "curves": {
            name: {
                "bytes": round(rates.bytes_of(name)),
                "crf": round(curve.crf_at(psnr_db), 2),
                "points": {str(crf): asdict(point) for crf, point in sorted(curve.points.items())},
                "structures": rates.structures[name],
            }
            for name, curve in rates.curves.items()
        },
    }
    verdicts = [
        Verdict(f"{rates.clip.name} ({view})", target, rates.ratio(*pair))
        for target, pair in zip(targets.DDRA_BYTES[view], COMPARED, strict=True)
    ]
    print_verdicts(verdicts)
    if recorded is not None:
        ratios = {
            name: rates.curves[name].bytes_at(recorded.psnr_db) / recorded.size_bytes
            for name in (DDRA_HEVC, DDRA_HEVC_4, PLAIN_X265, AV1_PYRAMID)
        }
        print(
            f"  beside the AV1 dataset's own frames ({recorded.size_bytes / 1024:.0f} KiB, {recorded.psnr_db:.2f} dB): "
        )
        print("    " + ", ".join(f"{name} {ratio:.3f}x" for name, ratio in ratios.items()))
        figures["recorded_av1"] = {**asdict(recorded), "ratios": ratios}
    return verdicts, figures


def _report_speed(
    rates: ClipRates, view: str, rounds: Mapping[str, list[Cost]]
) -> tuple[list[Verdict], dict[str, Any]]:
    print_table(
        f"encoding {rates.clip.name} on one thread at {rates.reference.psnr_db:.2f} dB: CPU s, median of {len(rounds[PLAIN])}",
        ["CPU s", "speed of libx265"],
        [
            (name, [f"{median_cpu_ms(costs) / 1e3:.2f}", f"{cpu_ratio(rounds[PLAIN], costs):.2f}x"])
            for name, costs in rounds.items()
        ],
    )
    verdict = Verdict(f"{rates.clip.name} ({view})", targets.ENCODE_SPEED, cpu_ratio(rounds[PLAIN], rounds[ENCODER]))
    figures = {
        name: {
            "cpu_s_of_each_round": [round(cost.cpu_s, 3) for cost in costs],
            "speed_of_libx265": round(cpu_ratio(rounds[PLAIN], costs), 3),
        }
        for name, costs in rounds.items()
    }
    assert set(rounds) == {ENCODER, PIPELINE, PLAIN}
    return print_verdicts([verdict]), figures


def _report_reencoding(
    dataset: RobotDataset, new: Reencoded, crf: float, seed: int
) -> tuple[list[Verdict], dict[str, Any]]:
    rows: list[tuple[str, Sequence[str]]] = []
    for name, report in new.reports.items():
        before, after = report["bytes_before"], report["bytes_after"]
        rows.append(
            (
                name,
                [
                    f"{before / 1024:.0f}",
                    f"{after / 1024:.0f} ({after / before:.2f}x)",
                    f"{report['psnr_db']:.2f} ({report['worst_psnr_db']:.2f})",
                    " ".join(str(section["interval"]) for section in report["intervals"]),
                    f"{report['cpu_s']:.1f}",
                    f"{100 * report['choice_cpu_s'] / report['cpu_s']:.1f} %",
                ],
            )
        )
    columns = ["KiB before", "KiB after", "dB RGB (worst)", "intervals", "CPU s", "of it choosing"]
    print_table(f"{dataset.name} ({dataset.codec}) written anew: HEVC, interval auto, crf {crf:g}", columns, rows)
    alone = pictures_alone(new.dataset)
    together = pictures_of_random_frames(new.dataset, DRAWS, seed=seed)
    choice = sum(report["choice_cpu_s"] for report in new.reports.values())
    whole = sum(report["cpu_s"] for report in new.reports.values())
    verdicts = [
        Verdict(dataset.name, targets.INTERVAL_CHOICE, 100 * choice / whole),
        Verdict(dataset.name, targets.PICTURES_ALONE, max(alone)),
        Verdict(dataset.name, targets.PICTURES_TOGETHER, together),
    ]
    figures = {
        "shards": {
            name: {key: value for key, value in report.items() if key != "path"} for name, report in new.reports.items()
        },
        "pictures_alone_mean": sum(alone) / len(alone),
        "pictures_of_16_random": together,
    }
    return print_verdicts(verdicts), figures


def _report_access(
    dataset: RobotDataset, rounds: Mapping[str, list[Cost]], differing: Mapping[str, int]
) -> tuple[list[Verdict], dict[str, Any]]:
    forms = {f"{PROJECT}, {form}": rounds[f"{PROJECT}, {form}"] for form in (DDRA_INDEXED, DDRA)}
    print_table(
        f"16 random frames of an episode of {dataset.name} from each camera, cold: CPU ms, median of "
        f"{len(rounds[f'{PROJECT}, {DDRA}'])}",
        ["CPU ms", *(f"times {name}'s" for name in forms)],
        [
            (name, [f"{median_cpu_ms(costs):.1f}", *(f"{cpu_ratio(costs, ours):.2f}x" for ours in forms.values())])
            for name, costs in rounds.items()
        ],
    )
    print("  frames unlike PyAV's: " + ", ".join(f"{name} {count}" for name, count in differing.items()))
    verdicts = []
    for name, ours in forms.items():
        promised = {
            targets.DDRA_OVER_NATIVE: (f"{TORCHCODEC_EXACT}, {NATIVE}",),
            targets.DDRA_OVER_AV1: tuple(f"{reader}, {AV1}" for reader in CONTESTANTS[AV1]),
        }
        for target, peers in promised.items():
            ratios = [cpu_ratio(rounds[peer], ours) for peer in peers if peer in rounds]
            if ratios:
                verdicts.append(Verdict(f"{dataset.name}, {name}", target, min(ratios)))
    figures = {
        name: {
            "cpu_ms": round(median_cpu_ms(costs), 1),
            "cpu_ratios": {form: round(cpu_ratio(costs, ours), 3) for form, ours in forms.items()},
            "cpu_ms_of_each_batch": [round(1e3 * cost.cpu_s, 1) for cost in costs],
        }
        for name, costs in rounds.items()
    }
    return print_verdicts(verdicts), figures


def _report_calibration(dataset: RobotDataset, new: Reencoded, folder: Path, crf: float) -> list[dict[str, Any]]:
    rows = calibrate(dataset, new.reports, folder, crf=crf)
    print_table(
        f"intervals of {dataset.name}: KiB at the PSNR of the chosen structure",
        [*map(str, INTERVALS), "chosen", "intervals", "loss"],
        [
            (
                f"episode {row.episode}, {row.camera}",
                [
                    *(f"{row.fixed_kib[interval]:.0f}" for interval in INTERVALS),
                    f"{row.chosen_kib:.0f}",
                    " ".join(str(interval) for _, interval in row.chosen),
                    f"{row.loss_percent:+.1f} %",
                ],
            )
            for row in rows
        ],
    )
    mean = sum(row.loss_percent for row in rows) / len(rows)
    print(f"  loss against the best fixed interval: {mean:.2f} % in the mean")
    return [{**asdict(row), "loss_percent": row.loss_percent} for row in rows]


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("dataset_masters", metavar="MASTERS", help="folder of lossless videos, one episode each")
    parser.add_argument("dataset_h264", metavar="H264_DATASET", help="LeRobot v3 dataset that is encoded anew")
    parser.add_argument(
        "dataset_av1", metavar="AV1_DATASET", nargs="?", help="the same episodes as LeRobot writes them"
    )
    parser.add_argument("--moving", default="wrist", help="what is in the names of moving views (default: wrist)")
    parser.add_argument(
        "--crf", type=float, default=DEFAULT_CRF, help="of the dataset written anew (default: as reencode_ddra)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="times that a clip is encoded for its speed (default: 3)")
    parser.add_argument("--batches", type=int, default=8, help="batches of random frames (default: 8)")
    parser.add_argument("--threads", type=int, default=1, help="decoder threads of one reader (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="fixes which frames are asked (default: 1)")
    parser.add_argument(
        "--calibrate", action="store_true", help="try every interval on every episode: half an hour more"
    )
    return parser.parse_args()


def _recorded(clip: Clip, av1: RobotDataset | None) -> Coded | None:
    """What the first episode of the AV1 dataset makes of a clip, which is named after episode and camera."""
    for camera in av1.cameras if av1 is not None else ():
        if av1 is not None and clip.name.endswith(camera.rpartition(".")[2]):
            return measure_coded(av1.episodes[0].shards[camera], clip)
    return None


def main() -> None:
    """Measure, print and keep the figures."""
    options = _parsed()
    dataset = read_robot_dataset(options.dataset_h264)
    av1 = read_robot_dataset(options.dataset_av1) if options.dataset_av1 else None
    figures: dict[str, Any] = {"clips": {}}
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in sorted(Path(options.dataset_masters).resolve().glob("*.mp4")):
            view = "moving" if options.moving in path.name else "static"
            clip = read_clip(path)
            recorded = _recorded(clip, av1)
            rates = measure_rates(clip, folder, () if recorded is None else (recorded.psnr_db,))
            of_rates, rate_figures = _report_rates(rates, view, recorded)
            rounds = measure_speed(
                clip,
                folder,
                ddra_crf=rates.curves[DDRA_HEVC].crf_at(rates.reference.psnr_db),
                plain_crf=rates.curves[PLAIN_X265].crf_at(rates.reference.psnr_db),
                rounds=options.rounds,
            )
            of_speed, speed_figures = _report_speed(rates, view, rounds)
            verdicts += of_rates + of_speed
            figures["clips"][clip.name] = {"rates": rate_figures, "speed": speed_figures}
        new = reencode_dataset(dataset, folder, codec="hevc", crf=options.crf)
        of_new, figures["reencoded"] = _report_reencoding(dataset, new, options.crf, options.seed)
        (folder / "indexed").mkdir()
        forms = {DDRA_INDEXED: with_index_files(new.dataset, folder / "indexed"), DDRA: new.dataset, NATIVE: dataset}
        if av1 is not None:
            forms[AV1] = av1
        access = measure_access(forms, num_batches=options.batches, num_threads=options.threads, seed=options.seed)
        of_access, figures["access"] = _report_access(dataset, *access)
        verdicts += of_new + of_access
        if options.calibrate:
            figures["calibration"] = _report_calibration(dataset, new, folder, options.crf)
    write_results("ddra", method=METHOD, options=options, figures=figures, verdicts=verdicts)


if __name__ == "__main__":
    main()
