"""Small models of timm with random weights against eager, held against the committed table of what became of each.

One of each family that timm has, unchanged, built from its configuration: nothing is downloaded.  Each is judged in a
process that may die, each result is a line of JSON at once, and a run that was ended goes on where it was.

    python benchmarks/timm_models.py                          # all on target cpu, compared with the table
    python benchmarks/timm_models.py --only '^vit' --jobs 4
    python benchmarks/timm_models.py --update                 # write the table

It takes the package ``timm`` next to torch.  Exit status 1 where a model does better or worse than the table says.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suite_runs import Judge, Row, differences, exit_status, json_lines, judged, options_parser, shown

from mlirstack.versions import versions

HERE = Path(__file__).resolve().parent
TABLE = HERE / "results" / "timm.json"

_MODELS_PER_PROCESS = 8

_ONE_EACH = (1, 1, 1, 1)
# Model → what it is built with; "size" is that of the images, where it is not the model's own or 64.
MODELS: dict[str, dict[str, Any]] = {
    # residual and dense networks
    "resnet18": {}, "resnet26d": {}, "resnext26ts": {}, "seresnet18": {}, "skresnet18": {}, "res2net50_14w_8s": {},
    "densenet121": {}, "dla34": {}, "dpn48b": {}, "vgg11": {}, "inception_v3": {"size": 96}, "xception41": {},
    "hrnet_w18_small": {}, "cspresnet50": {}, "vovnet39a": {}, "eca_nfnet_l0": {}, "repvgg_a0": {},
    # small ones for telephones
    "mobilenetv3_small_050": {}, "mobilenetv2_035": {}, "mobilenetv4_conv_small": {}, "efficientnet_b0": {},
    "efficientnetv2_rw_t": {}, "mnasnet_050": {}, "ghostnet_050": {}, "ghostnetv2_100": {}, "tinynet_e": {},
    "rexnet_100": {}, "regnetx_002": {}, "regnety_002": {}, "repghostnet_050": {}, "fastvit_t8": {},
    "starnet_s1": {}, "edgenext_xx_small": {}, "mobilevit_xxs": {},
    "mobilevitv2_050": {}, "mobileone_s0": {}, "fbnetv3_b": {}, "lcnet_050": {},
    # convolutions arranged as transformers are
    "convnext_atto": {}, "convnextv2_atto": {}, "poolformer_s12": {}, "mambaout_femto": {},
    "inception_next_atto": {}, "hgnet_tiny": {},
    # transformers
    "vit_tiny_patch16_224": {}, "deit_tiny_distilled_patch16_224": {}, "beit_base_patch16_224": {"depth": 1},
    "cait_xxs24_224": {"depth": 1}, "xcit_nano_12_p16_224": {"depth": 2}, "tnt_s_patch16_224": {"depth": 2},
    "eva02_tiny_patch14_224": {"depth": 2}, "swin_tiny_patch4_window7_224": {"depths": _ONE_EACH},
    "swinv2_tiny_window8_256": {"depths": _ONE_EACH}, "twins_svt_small": {}, "pit_ti_224": {}, "levit_128s": {},
    "coat_lite_tiny": {}, "crossvit_tiny_240": {}, "visformer_tiny": {}, "nest_tiny": {}, "volo_d1_224": {},
    "maxvit_pico_rw_256": {}, "coatnet_pico_rw_224": {}, "efficientformer_l1": {}, "efficientvit_b0": {},
    "davit_tiny": {"depths": _ONE_EACH}, "pvt_v2_b0": {}, "mvitv2_tiny": {}, "gcvit_xxtiny": {}, "hiera_tiny_224": {},
    # perceptrons
    "mixer_s32_224": {}, "resmlp_12_224": {}, "gmlp_ti16_224": {},
}  # fmt: skip


def judge_of(timeout: float) -> Judge:
    """A judge of models; asked None, it tells timm's version."""
    command = [sys.executable, str(HERE / "timm_worker.py")]
    return Judge(command, threads=1, timeout=timeout, lifetime=_MODELS_PER_PROCESS, beyond=("build",))


def table_text(meta: Mapping[str, Any], rows: Mapping[str, Row]) -> str:
    """JSON, one line a model."""
    counts = dict(Counter(row["verdict"] for row in rows.values()).most_common())
    return f'{{\n{json_lines({**meta, "counts": counts}, 1)},\n "models": {{\n{json_lines(rows)}\n }}\n}}\n'


def main() -> int:
    """Run, print counts and what differs from the table, or write it."""
    parser = options_parser(__doc__, timeout=300.0, out=Path("build/timm.jsonl"), table=TABLE)
    parser.add_argument("--target", default="cpu", help="cpu; the table is of cpu only")
    return exit_status(_main, parser.parse_args())


def _main(options: argparse.Namespace) -> int:
    naming = judge_of(options.timeout)
    packages = {"timm": naming.ask(None), **{name: versions()[name] for name in ("torch", "torch-mlir")}}
    naming.close()
    wanted = {
        name: {
            "model": name,
            "arguments": {key: value for key, value in given.items() if key != "size"},
            "size": given.get("size"),
            "target": options.target,
        }
        for name, given in MODELS.items()
        if re.search(options.only, name)
    }
    known = json.loads(options.table.read_text())["models"] if options.table.exists() else {}
    judge = functools.partial(judge_of, options.timeout)
    header = {"target": options.target, "versions": packages}
    found = judged(wanted, judge, options.out, header, options.jobs, budget=options.budget)
    print(json.dumps(Counter(row["verdict"] for row in found.values())))
    if options.update:
        every = {**known, **found}
        ordered = {name: every[name] for name in MODELS if name in every}
        options.table.write_text(table_text({"target": options.target, "versions": packages}, ordered))
        return 0
    return shown(differences(known, found))


if __name__ == "__main__":
    sys.exit(main())
