"""Kill a translation run twice, and print the step of the checkpoint that is left; a program, since it forks."""

import random
import sys
from pathlib import Path

from spectralgrad_lab.transfer.translation import TranslationConfig, train_translation

from .kills import Told, killed


class ToldLater(Told):
    """Writes to the pipe from the second step on, when a checkpoint has been saved."""

    begun = False

    def step(self, step):
        if self.begun:
            super().step(step)
        self.begun = True


def work(folder, pipe):
    train_translation(TranslationConfig.from_toml(folder / "run.toml"), folder, resume=True, progress=ToldLater(pipe))


if __name__ == "__main__":
    chance = random.Random(0)
    for _ in range(2):
        state = killed(work, Path(sys.argv[1]), chance.uniform(0, 0.02))
        print(state["result"]["step"])
