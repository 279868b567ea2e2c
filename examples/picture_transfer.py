"""Give a photograph the colours of a painting, its style (with the weights of VGG-16 as argument), and translate it."""

import shutil
import sys
from pathlib import Path

from spectralgrad_lab.transfer import find_picture, read_picture, transfer_color, write_picture
from spectralgrad_lab.transfer.features import SHIPPED, load_decoders, load_encoder, stylize
from spectralgrad_lab.transfer.pictures.shipped import art
from spectralgrad_lab.transfer.translation import TranslationConfig, Translator, train_translation

content, style = (read_picture(find_picture(name), longest=160) for name in ("cat", "night_cafe"))
out = Path("pictures")
(out / "photos").mkdir(parents=True, exist_ok=True)
(out / "paintings").mkdir(exist_ok=True)


def save(name, pixels):
    """Write a picture, and print how far its mean colour is from that of the painting."""
    write_picture(out / name, content.with_pixels(pixels))
    gap = (pixels.mean((1, 2)) - style.rgb.mean((1, 2))).norm()
    print(f"{out / name}: distance from the mean colour of the painting {gap:.4f}")


save("photo.png", content.rgb)
save("half.png", transfer_color(content.rgb, style.rgb, strength=0.5, space="lab"))
save("color.png", transfer_color(content.rgb, style.rgb))
for file in sys.argv[1:]:
    encoder = load_encoder(file)
    save("style.png", stylize(content.rgb, style.rgb, encoder, load_decoders(SHIPPED, encoder, (3, 2, 1)), (3, 2, 1)))

for file in art().values():  # too few pictures and steps for more than a first impression
    shutil.copy(file, out / ("paintings" if file.name.startswith("van_gogh") else "photos"))
domains = {"a": str(out / "photos"), "b": str(out / "paintings")}
config = TranslationConfig(**domains, size=32, scales=1, width=2, batch_size=1, lr=2e-3, steps=30, tensorboard=False)
result = train_translation(config, out / "run", resume=True)
print(f"translation: {result.status}, reconstruction loss {result.losses['reconstruction']:.3f}")
save("translated.png", Translator.load(out / "run")(content.rgb, style.rgb))
