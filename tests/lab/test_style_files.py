"""Weights of style transfer in files: known by their content, refused in one line if they do not fit."""

import json

import pytest
import torch
from safetensors.torch import save, save_file

from spectralgrad_lab.transfer.features import encoder_file as module
from spectralgrad_lab.transfer.features.decoder_files import (
    SHIPPED,
    DecoderError,
    decoder_file,
    load_decoder,
    load_decoders,
    run_folder,
    save_decoder,
)
from spectralgrad_lab.transfer.features.encoder_file import EncoderError, digest_of, load_encoder
from spectralgrad_lab.transfer.features.mirror_decoder import Decoder
from spectralgrad_lab.transfer.features.vgg_encoder import Encoder

from .style_networks import LEVELS, decoder_folder, encoder_tensors, small_decoder, small_encoder


def written(folder, tensors):
    path = folder / "encoder.safetensors"
    save_file(tensors, path)
    return path


class TestEncoderFile:
    def test_the_order_in_the_file_does_not_matter(self, tmp_path, monkeypatch):
        tensors = encoder_tensors()
        monkeypatch.setattr(module, "VGG16", digest_of(tensors))
        path = written(tmp_path, tensors)
        whole = path.read_bytes()
        path.write_bytes(save(tensors, {"written by": "somebody else"}))
        assert path.read_bytes() != whole
        assert load_encoder(path).digest == module.VGG16

    def test_one_bit_matters(self, tmp_path, monkeypatch):
        tensors = encoder_tensors()
        monkeypatch.setattr(module, "VGG16", digest_of(tensors))
        tensors["28.bias"][3] = torch.nextafter(tensors["28.bias"][3], torch.tensor(9.0))  # of a layer that is not used
        path = written(tmp_path, tensors)
        with pytest.raises(EncoderError, match=r"other weights than those trained on ImageNet .* --any-encoder"):
            load_encoder(path)
        assert load_encoder(path, any_weights=True).digest == digest_of(tensors)

    def test_names_types_and_shapes_are_part_of_the_content(self):
        a = torch.arange(6.0)
        digests = {digest_of(t) for t in ({"a": a}, {"b": a}, {"a": a.view(2, 3)}, {"a": a.to(torch.float64)})}
        assert len(digests) == 4

    def test_weights_need_no_gradient(self, tmp_path):
        encoder = load_encoder(written(tmp_path, encoder_tensors()), any_weights=True)
        assert not any(p.requires_grad for p in encoder.parameters())
        assert not encoder.training

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda t: t.pop("10.bias"), r"it lacks '10\.bias'"),
            (lambda t: t.update(extra=torch.zeros(1)), r"it has 'extra', which is not one of them"),
            (lambda t: t.update({"7.weight": torch.zeros(8, 9, 3, 3)}), r"expected 7\.weight .*\(8, 8, 3, 3\), got"),
            (lambda t: t.update({"0.bias": torch.zeros(7)}), r"expected 0\.weight .*\(7, 3, 3, 3\), got"),
            (lambda t: t.update({"0.bias": torch.zeros(6, dtype=torch.int32)}), r"0\.bias of floating-point numbers"),
            (lambda t: t["12.weight"].fill_(torch.nan), r"12\.weight contains NaN"),
        ],
    )
    @pytest.mark.parametrize("any_weights", [False, True])
    def test_files_of_another_network(self, tmp_path, change, said, any_weights):
        tensors = encoder_tensors()
        change(tensors)
        path = written(tmp_path, tensors)
        with pytest.raises(EncoderError, match=said) as found:
            load_encoder(path, any_weights=any_weights)
        assert str(found.value).startswith(str(path))
        assert "\n" not in str(found.value)

    def test_files_that_are_none(self, tmp_path):
        with pytest.raises(EncoderError, match=r"no such file\. Pass the 13 convolutions of VGG-16 .*\.save_file\("):
            load_encoder(tmp_path / "none.safetensors")
        with pytest.raises(EncoderError, match="not a file"):
            load_encoder(tmp_path)
        path = written(tmp_path, encoder_tensors())
        for content in (b"", b"not safetensors at all", path.read_bytes()[:-100]):
            path.write_bytes(content)
            with pytest.raises(ValueError, match="expected a safetensors file"):
                load_encoder(path)


def described(decoder, digest, changes=None):
    known = {"level": 1, "encoder": digest, "inputs": decoder.inputs, "widths": [6, 6, 6, 6], **(changes or {})}
    return save(dict(decoder.state_dict()), {"decoder": json.dumps(known)})


class TestDecoderFile:
    @pytest.fixture
    def encoder(self, tmp_path):
        return small_encoder(tmp_path)

    @pytest.mark.parametrize("level", LEVELS)
    def test_a_decoder_comes_back_in_half_precision(self, tmp_path, encoder, level):
        decoder, path = small_decoder(level), decoder_file(tmp_path, level)
        decoder.center.uniform_()
        decoder.scale.fill_(3.0)
        save_decoder(path, decoder, encoder.digest)
        found = load_decoder(path, encoder)
        assert (found.level, found.inputs, found.widths) == (level, decoder.inputs, decoder.widths)
        for name, tensor in decoder.state_dict().items():
            assert torch.equal(found.state_dict()[name], tensor.half().float())
        assert path.stat().st_size < 2 * sum(t.numel() for t in decoder.state_dict().values()) + 4096
        features = torch.rand(1, decoder.inputs, 4, 4)
        assert (found(features) - decoder(features)).abs().max() < 1e-2
        assert not any(p.requires_grad for p in found.parameters())

    def test_folders_and_runs(self, tmp_path, encoder):
        folder = decoder_folder(tmp_path / "decoders", (1, 2))
        inner = run_folder(folder, 3)
        inner.mkdir()
        save_decoder(decoder_file(inner, 3), small_decoder(3), encoder.digest)
        assert {level: d.level for level, d in load_decoders(folder, encoder, (3, 1)).items()} == {3: 3, 1: 1}
        with pytest.raises(DecoderError, match=r"decoder-4\.safetensors: no such file\. Train it with: .* --level 4"):
            load_decoders(folder, encoder, (4,))
        decoder_file(folder, 2).replace(decoder_file(folder, 4))
        with pytest.raises(DecoderError, match="expected a decoder of level 4, got one of level 2"):
            load_decoders(folder, encoder, (4,))

    def test_a_decoder_of_another_encoder(self, tmp_path, encoder):
        path = tmp_path / "decoder.safetensors"
        save_decoder(path, small_decoder(1), "0" * 64)
        with pytest.raises(DecoderError, match=r"decoder\.safetensors: not a decoder for this encoder: it was trained"):
            load_decoder(path, encoder)

    @pytest.mark.parametrize(
        ("metadata", "said"),
        [
            ({"level": "1"}, r"decoder\.level: expected a whole number from 1 to 5, got '1'"),
            ({"level": 7}, r"decoder\.level: expected a whole number from 1 to 5, got 7"),
            ({"level": 2}, "size mismatch|Missing key"),
            ({"widths": [6, 6]}, "four positive widths"),
            ({"widths": [6, 6, 6, 60000]}, "a whole number from 1 to 1024, got 60000"),
            ({"inputs": 0}, "a whole number from 1 to 1024, got 0"),
            ({"encoder": 3}, r"decoder\.encoder: expected printable text"),
        ],
    )
    def test_metadata_that_cannot_be(self, tmp_path, encoder, metadata, said):
        path, decoder = tmp_path / "decoder.safetensors", small_decoder(1)
        path.write_bytes(described(decoder, encoder.digest, metadata))
        with pytest.raises(DecoderError, match=said) as found:
            load_decoder(path, encoder)
        assert "\n" not in str(found.value)

    def test_damaged_files(self, tmp_path, encoder):
        path = tmp_path / "decoder.safetensors"
        for content in (b"", b"text" * 20):
            path.write_bytes(content)
            with pytest.raises(DecoderError, match="expected a safetensors file"):
                load_decoder(path, encoder)
        save_file(small_decoder(1).state_dict(), path)
        with pytest.raises(DecoderError, match="decoder: expected level, encoder, inputs, widths, got none"):
            load_decoder(path, encoder)

    def test_weights_that_are_not_finite(self, tmp_path, encoder):
        decoder, path = small_decoder(1), tmp_path / "decoder.safetensors"
        decoder.stages[0][0].bias[0] = 1e6
        with pytest.raises(DecoderError, match="not finite in half precision"):
            save_decoder(path, decoder, encoder.digest)
        assert not path.exists()
        decoder.stages[0][0].bias[0] = torch.nan
        path.write_bytes(described(decoder, encoder.digest))
        with pytest.raises(DecoderError, match=r"stages\.0\.0\.bias contains NaN"):
            load_decoder(path, encoder)

    def test_decoders_that_come_with_the_lab_are_for_vgg_16_and_small(self):
        encoder = Encoder()
        encoder.digest = module.VGG16
        files = sorted(SHIPPED.glob("*.safetensors"))
        assert {load_decoder(path, encoder).level for path in files} == {1, 2, 3}
        assert all(load_decoder(path, encoder).level == int(path.stem[-1]) for path in files)
        assert sum(path.stat().st_size for path in files) < 10e6

    def test_levels_that_a_folder_lacks_are_those_of_the_lab(self, tmp_path):
        encoder = Encoder()
        encoder.digest = module.VGG16
        decoder = Decoder(4)
        save_decoder(tmp_path / "decoder-4.safetensors", decoder, module.VGG16)
        assert sorted(load_decoders(tmp_path, encoder, (4, 3, 1))) == [1, 3, 4]
        encoder.digest = "another"
        with pytest.raises(DecoderError, match=r"decoder-3\.safetensors: no such file"):
            load_decoders(tmp_path, encoder, (3,))

    def test_widths_of_decoders(self):
        with pytest.raises(ValueError, match="four positive widths"):
            Decoder(1, widths=(6, 6))
