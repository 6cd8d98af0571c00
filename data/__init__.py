"""Text -> tokens -> TFRecords -> tf.data. Code only, never bytes; knows no model."""
