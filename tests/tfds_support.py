"""Small datasets that tensorflow-datasets itself prepares, as if they had been downloaded."""

from __future__ import annotations


def prepare(
    folder, name, features, splits, config=None, version="1.0.0", num_shards=1, shuffled=True
):
    """Prepares a dataset of this name in `folder`; `splits` has the rows of each."""
    import tensorflow_datasets as tfds

    with tfds.core.registered.skip_registration():

        class Small(tfds.core.GeneratorBasedBuilder):
            """Rows that the test gives."""

            # As if defined in a script: for classes of a package, tfds 4.9.10 needs
            # importlib_resources, which it does not declare.
            __module__ = "__main__"
            VERSION = tfds.core.Version(version)
            BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)] if config else []

            def _info(self):
                return tfds.core.DatasetInfo(
                    builder=self,
                    features=tfds.features.FeaturesDict(features),
                    disable_shuffling=not shuffled,
                )

            def _split_generators(self, dl_manager):
                return {split: enumerate(rows) for split, rows in splits.items()}

            def _generate_examples(self):
                raise NotImplementedError

    Small.name = name
    builder = Small(data_dir=folder, **({"config": config} if config else {}))
    download = tfds.download.DownloadConfig(num_shards=num_shards)
    builder.download_and_prepare(download_config=download)
