-- A job that needs no other system, to see that the pod works: its rows are in `headrace logs alerts`. Replace it by yours.
CREATE TABLE readings (
  sensor INT,
  celsius INT
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '1',
  'fields.sensor.min' = '1', 'fields.sensor.max' = '5',
  'fields.celsius.min' = '0', 'fields.celsius.max' = '100'
);

CREATE TABLE alerts (
  sensor INT,
  celsius INT
) WITH ('connector' = 'print');

INSERT INTO alerts SELECT sensor, celsius FROM readings WHERE celsius > 90;
