"""The formats that core itself offers: json, csv and raw. Each module is loaded when its format is named."""
