"""Functions for expressions and SQL: contracts, and what each says of addresses and user agents."""

from __future__ import annotations

import ipaddress
import os
import random
from pathlib import Path
from typing import Any

import headrace as hr
import mmdb_writer
import netaddr
import polars as pl
import pytest
from headrace.foundation.errors import FunctionError
from headrace_contract import FunctionContract
from headrace_logpresets import functions
from headrace_logpresets.addresses import NetworkSet

PHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/17.2 Mobile/15E148 Safari/604.1"
)
BERLIN = {
    "continent": {"code": "EU"},
    "country": {"iso_code": "DE", "names": {"en": "Germany", "de": "Deutschland"}},
    "subdivisions": [{"iso_code": "BE", "names": {"en": "Land Berlin"}}],
    "city": {"names": {"en": "Berlin"}},
    "location": {"latitude": 52.5, "longitude": 13.4, "time_zone": "Europe/Berlin"},
}


def write_database(path: Path, records: dict[str, dict[str, Any]], ip_version: int = 6) -> Path:
    writer = mmdb_writer.MMDBWriter(ip_version=ip_version, ipv4_compatible=ip_version == 6, float_type="f64")
    for network, record in records.items():
        writer.insert_network(netaddr.IPSet([network]), record)
    writer.to_db_file(str(path))
    return path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    network = {"autonomous_system_number": 64500, "autonomous_system_organization": "Example"}
    return write_database(tmp_path / "city.mmdb", {"192.0.2.0/24": BERLIN, "2001:db8::/32": network})


class TestIpInNetworks(FunctionContract):
    cases = [
        (("10.1.2.3", "10.0.0.0/8 192.0.2.0/24"), True),
        (("192.0.2.255", "10.0.0.0/8 192.0.2.0/24"), True),
        (("192.0.3.0", "10.0.0.0/8 192.0.2.0/24"), False),
        (("2001:db8::1", "10.0.0.0/8, 2001:db8::/32"), True),
        (("2001:db9::1", "10.0.0.0/8, 2001:db8::/32"), False),
        (("10.1.2.3", "10.1.2.3"), True),
        (("10.1.2.3", ""), False),
        (("::ffff:10.1.2.3", "10.0.0.0/8"), False),
        (("010.1.2.3", "10.0.0.0/8"), None),
        (("10.1.2.256", "10.0.0.0/8"), None),
        (("no address", "10.0.0.0/8"), None),
        ((None, "10.0.0.0/8"), None),
        (("10.1.2.3", None), None),
    ]

    def make_function(self) -> Any:
        return functions.ip_in_networks


class TestParseUserAgent(FunctionContract):
    argument_types = ["string"]
    cases = [
        (
            (PHONE,),
            {"browser": "Mobile Safari", "browser_version": "17.2", "os": "iOS", "os_version": "17.2", "device": "iPhone",
             "brand": "Apple", "model": "iPhone"},
        ),
        (
            ("curl/8.5.0",),
            {"browser": "curl", "browser_version": "8.5.0", "os": None, "os_version": None, "device": None, "brand": None,
             "model": None},
        ),
        ((None,), None),
    ]  # fmt: skip

    def make_function(self) -> Any:
        return functions.parse_user_agent


def test_sets_of_networks_give_what_the_library_of_addresses_gives() -> None:
    chance = random.Random(7)
    networks: list[Any] = [
        ipaddress.ip_network((chance.getrandbits(32), chance.randint(9, 32)), strict=False) for _ in range(300)
    ]
    networks += [
        ipaddress.ip_network((chance.getrandbits(128), chance.randint(3, 128)), strict=False) for _ in range(60)
    ]
    edges = [each[place] for each in networks for place in (0, -1)]
    near = [
        type(each)(min(max(int(each) + step, 0), 2**each.max_prefixlen - 1)) for each in edges for step in (-1, 0, 1)
    ]
    texts = [str(each) for each in near] + ["", "1.2.3", "::1::"]
    found = NetworkSet(networks).contains(pl.Series(texts)).to_list()
    expected = [any(each in network for network in networks if network.version == each.version) for each in near]
    assert found == [*expected, None, None, None]
    assert 0 < sum(expected) < len(expected)


def test_networks_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "blocked.txt"
    path.write_text("# blocked\n10.0.0.0/8  # private\n\n2001:db8::/32\n")
    addresses = pl.Series(["10.0.0.1", "11.0.0.1", "2001:db8::1"])
    found = functions.ip_in_network_file.function(addresses, pl.Series([str(path)] * 3))
    assert found.to_list() == [True, False, True]


def test_files_and_lists_that_are_unusable(tmp_path: Path) -> None:
    path = tmp_path / "blocked.txt"
    path.write_text("10.0.0.0/8\n10.0.0.0/33\n")
    address = pl.Series(["10.0.0.1"])
    with pytest.raises(FunctionError, match=r'"10\.0\.0\.0/33" in line 2 of .* is not a network'):
        functions.ip_in_network_file.function(address, pl.Series([str(path)]))
    with pytest.raises(FunctionError, match="cannot read networks"):
        functions.ip_in_network_file.function(address, pl.Series([str(tmp_path / "none")]))
    with pytest.raises(FunctionError, match="not a network"):
        functions.ip_in_networks.function(address, pl.Series(["10.0.0.0/8 nonsense"]))
    with pytest.raises(FunctionError, match="cannot open"):
        functions.geoip.function(address, pl.Series([str(tmp_path / "none")]))
    with pytest.raises(FunctionError, match="as a MaxMind database"):
        functions.geoip.function(address, pl.Series([str(path)]))


def test_places_of_addresses(database: Path) -> None:
    addresses = pl.Series(["192.0.2.7", "2001:db8::7", "198.51.100.1", "no address", None, "192.0.2.7"])
    berlin, network, *none, again = functions.geoip.function(addresses, pl.Series([str(database)] * 6)).to_list()
    assert {name: value for name, value in berlin.items() if value is not None} == {
        "continent_code": "EU", "country_code": "DE", "country": "Germany", "region_code": "BE", "region": "Land Berlin",
        "city": "Berlin", "latitude": 52.5, "longitude": 13.4, "timezone": "Europe/Berlin",
    }  # fmt: skip
    assert {name: value for name, value in network.items() if value is not None} == {
        "asn": 64500, "organization": "Example"
    }  # fmt: skip
    assert none == [None, None, None]
    assert again == berlin


def test_records_as_json(database: Path) -> None:
    found = functions.mmdb_record.function(pl.Series(["2001:db8::7", "8.8.8.8"]), pl.Series([str(database)] * 2))
    assert found.to_list() == ['{"autonomous_system_number":64500,"autonomous_system_organization":"Example"}', None]


def test_a_database_of_ipv4_has_nothing_on_ipv6(tmp_path: Path) -> None:
    path = write_database(tmp_path / "four.mmdb", {"192.0.2.0/24": {"country": {"iso_code": "DE"}}}, ip_version=4)
    found = functions.geoip.function(pl.Series(["192.0.2.1", "2001:db8::1"]), pl.Series([str(path)] * 2))
    assert [each and each["country_code"] for each in found] == ["DE", None]


def test_a_database_that_was_replaced_is_opened_anew(tmp_path: Path) -> None:
    path = write_database(tmp_path / "city.mmdb", {"192.0.2.0/24": {"city": {"names": {"en": "Old"}}}})
    address, name = pl.Series(["192.0.2.1"]), pl.Series([str(path)])
    assert functions.geoip.function(address, name)[0]["city"] == "Old"
    os.replace(write_database(tmp_path / "new", {"192.0.2.0/24": {"city": {"names": {"en": "New"}}}}), path)
    assert functions.geoip.function(address, name)[0]["city"] == "New"


def test_several_databases_in_one_batch(database: Path, tmp_path: Path) -> None:
    other = write_database(tmp_path / "other.mmdb", {"192.0.2.0/24": {"country": {"iso_code": "AT"}}})
    paths = pl.Series([str(database), None, str(other), str(database)])
    found = functions.geoip.function(pl.Series(["192.0.2.1"] * 4), paths)
    assert [each and each["country_code"] for each in found] == ["DE", None, "AT", "DE"]


def test_sql(database: Path) -> None:
    hr.register("visits", pl.DataFrame({"client": ["192.0.2.7", "10.0.0.1"], "agent": [PHONE, "curl/8.5.0"]}))
    query = """
        SELECT client, parse_user_agent(agent).browser AS browser, geoip(client, 'PATH').city AS city,
               ip_in_networks(client, '10.0.0.0/8, fd00::/8') AS inside
        FROM visits
    """
    rows = hr.sql(query.replace("PATH", str(database))).collect()
    assert sorted(rows.rows()) == [
        ("10.0.0.1", "curl", None, True),
        ("192.0.2.7", "Mobile Safari", "Berlin", False),
    ]
