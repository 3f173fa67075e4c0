import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.planner.factories.TestValuesTableFactory;
import org.apache.flink.table.test.program.SinkTestStep;
import org.apache.flink.table.test.program.SourceTestStep;
import org.apache.flink.table.test.program.TableTestProgram;
import org.apache.flink.types.Row;

/**
 * Runs programs on Flink itself, as a stream, in one run without a stop: {@code java -cp JARS OneRun.java FILE CLASS/ID…}.
 *
 * <p>FILE gets, by program, the changes of each sink, or under {@code error} why Flink does not run it. A watermark follows each row.
 */
public class OneRun {
    private static TableTestProgram program(String name) throws ReflectiveOperationException {
        String[] parts = name.split("/", 2);
        for (String place : List.of("stream", "common", "batch", "testutils")) {
            String found = "org.apache.flink.table.planner.plan.nodes.exec." + place + "." + parts[0];
            try {
                for (var field : Class.forName(found).getDeclaredFields()) {
                    field.setAccessible(true);
                    if (field.get(null) instanceof TableTestProgram) {
                        TableTestProgram made = (TableTestProgram) field.get(null);
                        if (parts[1].equals(made.id) || parts[1].equals(made.id + " (" + field.getName() + ")")) {
                            return made;
                        }
                    }
                }
            } catch (ClassNotFoundException absent) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static Map<String, Object> rows(TableTestProgram program) throws Exception {
        TableEnvironment environment = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        environment.getConfig().set("parallelism.default", "1");
        environment.getConfig().set("table.exec.sink.require-on-conflict", "false");
        program.getSetupConfigOptionTestSteps().forEach(each -> each.apply(environment));
        for (SourceTestStep step : program.getSetupSourceTestSteps()) {
            List<Row> rows = new ArrayList<>(step.dataBeforeRestore);
            rows.addAll(step.dataAfterRestore);
            Map<String, String> options = new HashMap<>();
            options.put("connector", "values");
            options.put("data-id", TestValuesTableFactory.registerData(rows));
            options.put("runtime-source", "NewSource");
            options.put("disable-lookup", "true");
            options.put("enable-watermark-push-down", "true");
            options.put("scan.watermark.emit.strategy", "on-event");
            step.apply(environment, options);
        }
        for (SinkTestStep step : program.getSetupSinkTestSteps()) {
            step.apply(environment, Map.of("connector", "values", "disable-lookup", "true", "sink-insert-only", "false"));
        }
        program.getSetupFunctionTestSteps().forEach(each -> each.apply(environment));
        program.getRunSqlTestStep().apply(environment).await();
        Map<String, Object> made = new LinkedHashMap<>();
        for (SinkTestStep step : program.getSetupSinkTestSteps()) {
            made.put(step.name, TestValuesTableFactory.getRawResultsAsStrings(step.name));
        }
        return made;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        for (int i = 1; i < args.length; i++) {
            try {
                out.put(args[i], rows(program(args[i])));
            } catch (ClassNotFoundException error) {
                throw error;
            } catch (Exception error) {
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                out.put(args[i], Map.of("error", String.valueOf(cause.getMessage())));
            } finally {
                TestValuesTableFactory.clearAllData();
            }
        }
        new ObjectMapper().writeValue(new File(args[0]), out);
        System.exit(0);
    }
}
