"""Text -> tokens -> TFRecords -> tf.data. Holds code only, no data; does not depend on models."""
