import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.LookupFunction;

/** A table of lines "number,text" that is read once and looked up in: Flink has no such source for files any more. */
public class SideInputFactory implements DynamicTableSourceFactory {
    private static final ConfigOption<String> PATH = ConfigOptions.key("path").stringType().noDefaultValue();

    @Override
    public String factoryIdentifier() {
        return "side-input";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(PATH);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of();
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        return new Source(FactoryUtil.createTableFactoryHelper(this, context).getOptions().get(PATH));
    }

    private record Source(String path) implements LookupTableSource {
        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            return LookupFunctionProvider.of(new Lookup(path));
        }

        @Override
        public DynamicTableSource copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "side input " + path;
        }
    }

    /** Looks rows up in a map in memory. */
    public static class Lookup extends LookupFunction {
        private final String path;
        private transient Map<Long, Collection<RowData>> rows;

        public Lookup(String path) {
            this.path = path;
        }

        @Override
        public void open(FunctionContext context) throws IOException {
            rows = new HashMap<>();
            for (String line : Files.readAllLines(Paths.get(path))) {
                String[] parts = line.split(",", 2);
                Long key = Long.valueOf(parts[0]);
                rows.put(key, Collections.singletonList(GenericRowData.of(key, StringData.fromString(parts[1]))));
            }
        }

        @Override
        public Collection<RowData> lookup(RowData key) {
            return rows.getOrDefault(key.getLong(0), Collections.emptyList());
        }
    }
}
