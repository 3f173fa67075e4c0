"""Functions for expressions and SQL: addresses in sets of networks, user agents, locations of addresses."""

from __future__ import annotations

from collections.abc import Callable

import headrace as hr
import polars as pl

from headrace_logpresets import addresses, databases, user_agents


def _each_set(
    values: pl.Series, sets: pl.Series, set_of: Callable[[str], Callable[[pl.Series], pl.Series]], result: pl.DataType
) -> pl.Series:
    """For each distinct text of ``sets`` (mostly there is one), apply its set to the values in the same rows."""
    distinct = sets.unique(maintain_order=True)
    if len(distinct) == 1:
        if distinct[0] is None:
            return pl.Series(values.name, [None], dtype=result).new_from_index(0, len(values))
        return set_of(distinct[0])(values)
    parts, places = [], []
    for text in distinct.drop_nulls():
        rows = (sets == text).fill_null(False).arg_true()
        parts.append(set_of(text)(values.gather(rows)))
        places.append(rows)
    missing = sets.is_null().arg_true()
    parts.append(pl.Series([None], dtype=result).new_from_index(0, len(missing)))
    order = pl.concat([*places, missing])
    return pl.concat(parts).gather(order.arg_sort()).alias(values.name)


@hr.udf(returns="boolean", vectorized=True)
def ip_in_networks(address: pl.Series, networks: pl.Series) -> pl.Series:
    """Whether an address is in one of several networks: ``ip_in_networks(client, '10.0.0.0/8, 2001:db8::/32')``.

    NULL if the text is not an address, or one of both is NULL.
    """
    return _each_set(address, networks, lambda text: addresses.networks_of_text(text).contains, pl.Boolean())


@hr.udf(returns="boolean", vectorized=True)
def ip_in_network_file(address: pl.Series, path: pl.Series) -> pl.Series:
    """Whether an address is in one of the networks of a file, which has one network per line. Each process reads the
    file once.

    NULL if the text is not an address, or one of both is NULL.
    """
    return _each_set(address, path, lambda text: addresses.networks_of_file(text).contains, pl.Boolean())


@hr.udf(returns=user_agents.FIELDS, vectorized=True)
def parse_user_agent(user_agent: pl.Series) -> pl.Series:
    """The parts of a user agent, as a struct: ``parse_user_agent(agent).browser``. NULL for NULL."""
    return user_agents.parsed(user_agent)


@hr.udf(returns=databases.FIELDS, vectorized=True)
def geoip(address: pl.Series, path: pl.Series) -> pl.Series:
    """The record of an address in a MaxMind database, as a struct: ``geoip(client,
    'GeoLite2-City.mmdb').country_code``.

    NULL if the database has no record of the address, or the text is not an address.
    """
    return _each_set(address, path, lambda text: databases.database(text).places, databases.TYPE)


@hr.udf(returns="string", vectorized=True)
def mmdb_record(address: pl.Series, path: pl.Series) -> pl.Series:
    """The whole record of an address in a MaxMind database, as JSON; NULL as for ``geoip``."""
    return _each_set(address, path, lambda text: databases.database(text).records, pl.String())
